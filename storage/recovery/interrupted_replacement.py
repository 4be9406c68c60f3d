"""Finishes or undoes what a crash has left of the replacement of a log by a copy.

The manifest decides (`storage/log/replacement.py`). Without the flag the old log is whole, and what was
prepared goes. With it the copy's segments are the log, and what was put aside gets its name; the files
of epochs, producers and aborted transactions are those of the old log, so the segments are read instead.
"""

from __future__ import annotations

import logging

from protocol.wire.numbers import Offset
from storage.files.errors import DamagedFile
from storage.files.files import FileSystem, remove_tree_durably, unlink_if_there
from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    LEADER_EPOCH_CHECKPOINT,
    MANIFEST,
    aside_directory,
    copy_directory,
    join,
    snapshot_file,
    unfinished_aside_directory,
)
from storage.formats.manifest import UNKNOWN_OFFSET, Manifest, decode
from storage.state.producer_recovery import snapshot_offsets

_log = logging.getLogger("storage.recovery.interrupted_replacement")


def remove_unfinished(fs: FileSystem, directory: str, manifest: Manifest | None) -> None:
    """Remove the copy that a crash has left of a log, and the log that was about to be put aside.

    Args:
        manifest: of the log; None if it is damaged: then what was put aside may be the last copy.
    """
    copy, aside = copy_directory(directory), unfinished_aside_directory(directory)
    if fs.exists(copy):
        remove_tree_durably(fs, copy)
    if manifest is None:
        finish_aside(fs, directory)
    elif not manifest.has_foreign_states and fs.exists(aside):
        remove_tree_durably(fs, aside)


def finish(fs: FileSystem, directory: str) -> None:
    """Finish a replacement whose manifest is committed, except for the names of the segments.

    Its end is the commit of a manifest without the flag, after the states were read from the segments.
    """
    # A process that was killed may have left a manifest that is not durable yet.
    fs.sync_directory(directory)
    finish_aside(fs, directory)
    for name in (LEADER_EPOCH_CHECKPOINT, ABORTED_TRANSACTIONS):
        unlink_if_there(fs, join(directory, name))
    for offset in snapshot_offsets(fs, directory):
        fs.unlink(join(directory, snapshot_file(offset)))


def finish_aside(fs: FileSystem, directory: str) -> str | None:
    """Give the log that was put aside its name, durably. The new log is committed.

    Returns its directory; None if none was put aside, or if it has its name. Raises DiskError.
    """
    unfinished = unfinished_aside_directory(directory)
    if not fs.exists(unfinished):
        return None
    end_offset = _end_of(fs, unfinished)
    number = 0
    while fs.exists(aside := aside_directory(directory, end_offset, number)):
        number += 1
    fs.rename(unfinished, aside)
    fs.sync_directory(directory.rpartition("/")[0])
    _log.info("%s: the log that was there is put aside in %s", directory, aside)
    return aside


def _end_of(fs: FileSystem, directory: str) -> Offset:
    """Returns the end of the log that was put aside, for its name; -1 if its manifest is damaged."""
    path = join(directory, MANIFEST)
    try:
        return decode(fs.read_bytes(path), path).segments[-1].end_offset
    except DamagedFile as error:
        _log.warning("%s", error)
        return UNKNOWN_OFFSET
