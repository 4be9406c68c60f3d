"""Determines the kind of a file by its name and, where names are ambiguous, by its first bytes."""

from __future__ import annotations

import enum
import re

from protocol.records.batch_header import MAGIC_AT
from replog import checkpoint_format, frames
from server.metadata import old_files
from storage.files.files import FileSystem
from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    CLEAN_SHUTDOWN,
    CLEANED,
    COMPACTION_HISTORY,
    COMPACTION_HISTORY_OLD,
    HASH_KEY,
    KEYS,
    LEADER_EPOCH_CHECKPOINT,
    LOCK,
    LOG,
    META_PROPERTIES,
    OFFSET_INDEX,
    RESERVE,
    SIGNING_KEY,
    START_COUNTER,
    SYNC_FAILED,
    TIME_INDEX,
    UNDO,
)
from storage.formats import coordinator_checkpoint, key_sidecar, ledger_entry, manifest
from storage.state import aborted_transactions, producer_state
from storage.undo import undo_file

BASE_OFFSET = re.compile(r"\d{20}(?=\.)")
PREFIX_BYTES = 17


class Kind(enum.Enum):
    """The kinds of files. Programs read the values, so they must not change."""

    SEGMENT = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    KEY_SIDECAR = "key sidecar"
    MANIFEST = "manifest"
    PRODUCER_SNAPSHOT = "producer snapshot"
    LEADER_EPOCHS = "leader epoch checkpoint"
    ABORTED_TRANSACTIONS = "aborted transactions"
    UNDO_FILE = "undo file"
    METADATA_LOG = "metadata log"
    METADATA_SNAPSHOT = "metadata snapshot"
    OLD_METADATA_LOG = "metadata log of an earlier release"
    OLD_METADATA_SNAPSHOT = "metadata snapshot of an earlier release"
    COORDINATOR_CHECKPOINT = "coordinator checkpoint"
    COMPACTION_HISTORY = "compaction history"
    TEXT = "text"
    LEDGER = "ledger"
    HASH_KEY = "hash key"
    """The secret of the cleaner's key hashes. Its contents are never printed."""
    SIGNING_KEY = "signing key"
    """It signs heads of the ledger and certificates of erasure. Its contents are never printed."""


BY_NAME = {
    LEADER_EPOCH_CHECKPOINT: Kind.LEADER_EPOCHS,
    ABORTED_TRANSACTIONS: Kind.ABORTED_TRANSACTIONS,
    UNDO: Kind.UNDO_FILE,
    META_PROPERTIES: Kind.TEXT,
    START_COUNTER: Kind.TEXT,
    CLEAN_SHUTDOWN: Kind.TEXT,
    SYNC_FAILED: Kind.TEXT,
    RESERVE: Kind.TEXT,
    LOCK: Kind.TEXT,
    HASH_KEY: Kind.HASH_KEY,
    SIGNING_KEY: Kind.SIGNING_KEY,
    COMPACTION_HISTORY: Kind.COMPACTION_HISTORY,
    COMPACTION_HISTORY_OLD: Kind.COMPACTION_HISTORY,
}
BY_SUFFIX = {
    OFFSET_INDEX: Kind.OFFSET_INDEX,
    TIME_INDEX: Kind.TIME_INDEX,
    KEYS: Kind.KEY_SIDECAR,
    ledger_entry.SUFFIX: Kind.LEDGER,
}
BY_MAGIC = {
    manifest.MAGIC: Kind.MANIFEST,
    key_sidecar.MAGIC: Kind.KEY_SIDECAR,
    aborted_transactions.MAGIC: Kind.ABORTED_TRANSACTIONS,
    undo_file.MAGIC: Kind.UNDO_FILE,
    producer_state.MAGIC: Kind.PRODUCER_SNAPSHOT,
    frames.SEGMENT_MAGIC: Kind.METADATA_LOG,
    checkpoint_format.MAGIC: Kind.METADATA_SNAPSHOT,
    coordinator_checkpoint.MAGIC: Kind.COORDINATOR_CHECKPOINT,
    old_files.MAGIC: Kind.OLD_METADATA_SNAPSHOT,
}


def kind_of(fs: FileSystem, path: str) -> Kind | None:
    """Returns the kind of the file at `path`; None if it is not a file of ours. Raises DiskError."""
    name = path.rpartition("/")[2].removesuffix(".tmp").removesuffix(CLEANED)
    if name in BY_NAME:
        return BY_NAME[name]
    for suffix, kind in BY_SUFFIX.items():
        if name.endswith(suffix):
            return kind
    prefix = _prefix(fs, path)
    if prefix[:4] in BY_MAGIC:
        return BY_MAGIC[prefix[:4]]
    if prefix[old_files.FRAME.size :].startswith(b'{"'):
        return Kind.OLD_METADATA_LOG
    is_segment = prefix[MAGIC_AT:] == b"\2" or not prefix
    return Kind.SEGMENT if is_segment or name.endswith(LOG) else None


def base_offset_of(path: str) -> int:
    """Returns the base offset in a file's name, to which index entries are relative; 0 without one."""
    found = BASE_OFFSET.match(path.rpartition("/")[2])
    return int(found[0]) if found else 0


def _prefix(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path)
    try:
        return file.read_at(0, PREFIX_BYTES)
    finally:
        file.close()
