"""Loads a log's aborted transactions from their file, or from its batches if the file is damaged."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from protocol.wire.numbers import Offset
from storage.files.errors import DamagedFile, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import ABORTED_TRANSACTIONS, join
from storage.segment.segment import Segment
from storage.state.aborted_transactions import AbortedTransactions, decode_aborted_transactions
from storage.state.producer_recovery import ProducerReplay
from storage.state.producer_state import ProducerStates

_log = logging.getLogger("storage.state.aborted_recovery")


def load_aborted(
    fs: FileSystem, directory: str, segments: Sequence[Segment], *, must_exist: bool
) -> AbortedTransactions:
    """Returns the aborted transactions, at least up to the last producer snapshot.

    A log that never had an aborted transaction has no file. With `must_exist` the manifest says that the
    file was written: then a missing file is rebuilt from the batches like a damaged one.

    Raises:
        FormatFromTheFuture: a later release wrote the file.
        CorruptLog, DiskError: the file is unusable, and so is a segment.
    """
    path = join(directory, ABORTED_TRANSACTIONS)
    if not must_exist and not fs.exists(path):
        return AbortedTransactions()
    try:
        return decode_aborted_transactions(fs.read_bytes(path), path)
    except (DamagedFile, MissingFile) as error:
        _log.warning("%s; reading the batches instead", error)
        replay = ProducerReplay(Offset(0), ProducerStates())
        replay.take_segments(segments)
        return AbortedTransactions(replay.aborted)


def write_aborted(
    fs: FileSystem, directory: str, aborted: AbortedTransactions, *, must_exist: bool
) -> bool:
    """Write the aborted transactions durably. An empty list is written only over an existing file.

    Returns whether the file exists now. Raises StorageError.
    """
    path = join(directory, ABORTED_TRANSACTIONS)
    if not len(aborted) and not must_exist and not fs.exists(path):
        return False
    fs.replace_durably(path, aborted.encode())
    return True
