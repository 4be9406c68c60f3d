"""The aborted transactions of a log: from their file, or from its batches if that is damaged."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from storage.aborted_transactions import AbortedTransactions, decode_aborted_transactions
from storage.errors import DamagedFile, MissingFile
from storage.files import FileSystem
from storage.paths import ABORTED_TRANSACTIONS, join
from storage.producer_recovery import ProducerReplay
from storage.producer_state import ProducerStates
from storage.segment import Segment

_log = logging.getLogger("storage.aborted_recovery")


def load_aborted(
    fs: FileSystem, directory: str, segments: Sequence[Segment], *, must_exist: bool
) -> AbortedTransactions:
    """The aborted transactions, up to the last snapshot of the producers at least.

    Where there never was one there is no file. One that `must_exist`, because the manifest says that
    it was written, and is missing is made again from the batches, as is a damaged one.

    Raises:
        FormatFromTheFuture: a later release wrote the file.
        CorruptLog, DiskError: it is no good, and neither is a segment.
    """
    path = join(directory, ABORTED_TRANSACTIONS)
    if not must_exist and not fs.exists(path):
        return AbortedTransactions()
    try:
        return decode_aborted_transactions(fs.read_bytes(path), path)
    except (DamagedFile, MissingFile) as error:
        _log.warning("%s; reading the batches instead", error)
        replay = ProducerReplay(0, ProducerStates())
        replay.take_segments(segments)
        return AbortedTransactions(replay.aborted)


def write_aborted(
    fs: FileSystem, directory: str, aborted: AbortedTransactions, *, must_exist: bool
) -> bool:
    """Keep them durably; an empty file only where there was one before.

    Returns whether there is a file now. Raises StorageError.
    """
    path = join(directory, ABORTED_TRANSACTIONS)
    if not len(aborted) and not must_exist and not fs.exists(path):
        return False
    fs.replace_durably(path, aborted.encode())
    return True
