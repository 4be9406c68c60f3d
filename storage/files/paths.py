"""The names of all files and directories of storage: made and parsed here, nowhere else.

<topic, cut to 200 bytes>.<topic id, 22 characters of base64url>/<partition>/
    manifest
    <base offset, 20 digits>.v<version>.log | .index | .timeindex | .keys   and the same + .cleaned
    <offset, 20 digits>.snapshot
    leader-epoch-checkpoint
    aborted-transactions
    undo
    cut.<offset>.<n>
<topic>.<topic id>/<partition>.checkpoint | .checkpoint.part
    and in a standby's copy    .checkpoint.download | .checkpoint.install
<topic>.<topic id>/<partition>.resync/                    a copy of the log that a resync is filling
<topic>.<topic id>/<partition>.aside.<end offset>[.<n>]/  a log that a resync has replaced
<topic>.<topic id>/<partition>.aside.part/                the same, until the new log is committed
<topic>.<topic id>.before[.<n>]/      a topic that was put aside as a whole
snapshots/<id>/ | <id>.part/  snapshots (`storage/snapshots/snapshot_files.py`)
standby/                     in a standby's directory: the copies of the source's metadata and of its
                             coordinators' topics, in the layout of a log directory
promotion.json               a promotion of this standby that has begun
rejoin.json                  a primary's directory that is becoming a standby's
standby.promoted.<time>/     what a completed promotion has replaced, and its report
"""

from __future__ import annotations

import base64
import re
import uuid
from dataclasses import dataclass
from functools import lru_cache

from protocol.wire.numbers import Offset

MANIFEST = "manifest"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
ABORTED_TRANSACTIONS = "aborted-transactions"
UNDO = "undo"
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
STANDBY_PROPERTIES = "standby.properties"
STANDBY = "standby"
PROMOTION = "promotion.json"
PROMOTED = "standby.promoted"
REJOIN = "rejoin.json"
HASH_KEY = "hash.key"
START_COUNTER = "start-counter"
CLEAN_SHUTDOWN = ".clean-shutdown"
SYNC_FAILED = ".sync-failed"
RESERVE = ".reserve"
METADATA = "metadata"
NODE_METADATA = "node"
LEASES = "leases"
SHOWN_BY_CLEANERS = "remote-cleaning.token"
SIGNING_KEY = "signing.key"
COMPACTION_HISTORY = "compaction-history"
COMPACTION_HISTORY_OLD = "compaction-history.old"
AUDIT_LOG = "audit.log"
CLEANING_LEDGER = "cleaning-ledger"
SNAPSHOTS = "snapshots"
SNAPSHOT_DESCRIPTOR = "snapshot.json"
DELETED = ".deleted"
CUT = "cut."
"""Begins the name of a file that keeps what recovery cut off a log."""
BEFORE = ".before"
"""Ends the name of a directory that this broker no longer uses, and keeps."""
CHECKPOINT = ".checkpoint"
PART = ".part"
DOWNLOAD = ".download"
INSTALL = ".install"
RESYNC = ".resync"
ASIDE = ".aside"
CLEANED = ".cleaned"

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
KEYS = ".keys"
SEGMENT_KINDS = (LOG, OFFSET_INDEX, TIME_INDEX, KEYS)

TOPIC_BYTES_MAX = 200
TOPIC_ID_CHARACTERS = 22

_SEGMENT_FILE = re.compile(r"(\d{20})\.v(\d+)(\.log|\.index|\.timeindex|\.keys)(\.cleaned)?")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")
_TOPIC_DIRECTORY = re.compile(r".+\.([A-Za-z0-9_-]{22})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """The parts of a segment file's name."""

    base_offset: Offset
    version: int
    kind: str
    is_cleaned: bool
    """Whether it still has its staged name, from before the swap."""


def segment_file(base_offset: int, version: int, kind: str, *, cleaned: bool = False) -> str:
    """Returns the name of a segment's file; `kind` is one of `SEGMENT_KINDS`."""
    return f"{base_offset:020d}.v{version}{kind}{CLEANED if cleaned else ''}"


@lru_cache(maxsize=1024)
def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse a segment file's name. Returns None if it is something else.

    Cached, because opening a log parses each name several times.
    """
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    return SegmentFile(
        base_offset=Offset(int(match[1])),
        version=int(match[2]),
        kind=match[3],
        is_cleaned=match[4] is not None,
    )


def snapshot_file(offset: int) -> str:
    """Returns the name of the producer snapshot of everything below `offset`."""
    return f"{offset:020d}.snapshot"


def parse_snapshot_file(name: str) -> int | None:
    """Returns the offset in a producer snapshot's name; None if it is something else."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else int(match[1])


def cut_file(offset: int, number: int) -> str:
    """Returns the name of the file that keeps what recovery cut off at `offset`."""
    return f"{CUT}{offset}.{number}"


def checkpoint_path(log_directory: str) -> str:
    """Returns the path of the checkpoint of a coordinator's partition, given its log's directory.

    It stands beside that directory, in the topic's: so it goes with the topic, and the directory has
    only files that its manifest explains.
    """
    return log_directory + CHECKPOINT


def copy_directory(log_directory: str) -> str:
    """Returns the directory in which a resync fills the new copy of a log, given the log's directory."""
    return log_directory + RESYNC


def aside_directory(log_directory: str, end_offset: int, number: int = 0) -> str:
    """Returns the directory that keeps a log which ended at `end_offset` before a resync replaced it.

    Args:
        number: counts the logs that were put aside with the same end.
    """
    suffix = f".{number}" if number else ""
    return f"{log_directory}{ASIDE}.{end_offset}{suffix}"


def unfinished_aside_directory(log_directory: str) -> str:
    """Returns the directory in which a log is put aside until the new log has replaced it."""
    return log_directory + ASIDE + PART


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Returns a topic id as Kafka prints it: 22 characters of base64url."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def topic_id_of(text: str) -> uuid.UUID:
    """Returns the topic id that `topic_id_text` has made this text of."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


@lru_cache(maxsize=16)
def topic_directory(topic: str, topic_id: uuid.UUID) -> str:
    """Returns the name of a topic's directory."""
    return topic_directory_of_text(topic, topic_id_text(topic_id))


def topic_directory_of_text(topic: str, topic_id: str) -> str:
    """Returns the name of a topic's directory. Topic names are ASCII, so cutting splits no character.

    Args:
        topic_id: as `topic_id_text` writes it.
    """
    return f"{topic[:TOPIC_BYTES_MAX]}.{topic_id}"


def parse_topic_directory(name: str) -> uuid.UUID | None:
    """Returns the topic id in a topic directory's name; None if it is something else."""
    match = _TOPIC_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    return topic_id_of(match[1])


def is_topic_put_aside(name: str) -> bool:
    """Returns whether a directory's name is that of a topic that was put aside."""
    topic, before, _ = name.rpartition(BEFORE)
    return bool(before) and parse_topic_directory(topic) is not None


def join(directory: str, name: str) -> str:
    """Returns the path of `name` in `directory`."""
    return f"{directory}/{name}"
