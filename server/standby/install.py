"""The files of a promotion: makes the standby's copies the broker's own. In this order, each durable:

    standby/<coordinator's topic>/<n>  written as logs into <topic>/<n>      again, if it was interrupted
    start-counter                      above the source's epochs, in each log directory
    standby/metadata/                  copied to metadata.followed
    metadata/                          renamed to metadata.before.<time>
    metadata.followed/                 renamed to metadata/                  <- done

The logs come before the metadata that names them. Names change within one directory only: a name that
moves to another one may be in neither after a crash. A start repeats what a crash has interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from protocol.wire.numbers import Epoch
from server.coordination.checkpoints import TopicCheckpoints
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.metadata.log import read_machine
from server.metadata.reign import EPOCH_STEP
from server.standby.coordinator_logs import write_log
from server.standby.followed_topics import FollowedTopic, followed_topics
from server.standby.partition_copy import PartitionCopy
from server.standby.promotion import Promotion, note_found
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import HASH_KEY, LOCK, METADATA, PART, STANDBY, join, topic_directory
from storage.formats.log_identity import LogIdentity
from storage.formats.meta_properties import read_meta_properties
from storage.formats.topic_partition import TopicPartition
from storage.log.directory_start import make_durably, raise_start_counter
from storage.log.opening import LogOpening

FOLLOWED = "metadata.followed"
"""The followed metadata, until it takes its place."""
BEFORE = "metadata.before"
"""Where the standby's own metadata goes, which knew its mirrors only; with the time of the promotion."""


def install(
    fs: FileSystem, promotion: Promotion, directories: Iterable[str], metadata_directory: str
) -> Promotion:
    """Make the copies of a standby the broker's own. Blocks. Does nothing if that is done.

    Args:
        directories: all log directories.

    Returns the promotion, with what of the copies cannot be read.

    Raises:
        StorageError: the disk failed, a copy is damaged, or another process uses the directory. The next
            start tries again.
    """
    standby = join(metadata_directory, STANDBY)
    before = join(metadata_directory, f"{BEFORE}.{promotion.promoted_ms}")
    if fs.exists(before) and not fs.exists(join(metadata_directory, FOLLOWED)):
        return promotion
    lock = fs.lock(join(metadata_directory, LOCK))
    try:
        if not fs.exists(before):
            for topic in followed_topics(read_machine(fs, join(standby, METADATA))):
                missing = _write_topic(fs, metadata_directory, topic)
                promotion = promotion.with_found(missing=missing)
            note_found(fs, metadata_directory, promotion)
            for directory in directories:
                raise_start_counter(fs, directory, Epoch(promotion.epoch + EPOCH_STEP))
            _copy_metadata(fs, metadata_directory, join(standby, METADATA))
        _exchange_metadata(fs, metadata_directory, before)
    finally:
        lock.release()
    return promotion


def _copy_metadata(fs: FileSystem, metadata_directory: str, followed: str) -> None:
    target = join(metadata_directory, FOLLOWED)
    if fs.exists(target):
        return
    part = target + PART
    fs.remove_tree(part)
    fs.make_directory(part)
    for name in fs.list(followed):
        fs.replace_durably(join(part, name), fs.read_bytes(join(followed, name)), secret=True)
    fs.sync_directory(part)
    fs.rename(part, target)
    fs.sync_directory(metadata_directory)


def _exchange_metadata(fs: FileSystem, metadata_directory: str, before: str) -> None:
    own = join(metadata_directory, METADATA)
    if not fs.exists(before):
        fs.rename(own, before)
        fs.sync_directory(metadata_directory)
    fs.rename(join(metadata_directory, FOLLOWED), own)
    fs.sync_directory(metadata_directory)


def _write_topic(fs: FileSystem, metadata_directory: str, topic: FollowedTopic) -> list[str]:
    """Write the logs of a topic. Returns what is missing, a sentence each."""
    missing: list[str] = []
    copies = join(join(metadata_directory, STANDBY), topic_directory(topic.name, topic.id))
    folder = join(metadata_directory, topic_directory(topic.name, topic.id))
    make_durably(fs, folder)
    identity_of = _identities(fs, metadata_directory, topic)
    checkpoints = TopicCheckpoints(has_commits=topic.name == OFFSETS_TOPIC)
    for partition in range(topic.partitions_count):
        if not fs.exists(join(copies, str(partition))):
            continue  # The followed metadata has it, but not a record of it: a start creates it.
        copy = PartitionCopy(
            fs, identity_of(copies, partition), checkpoints, now_ms=lambda: _opening().now_ms
        )
        try:
            missing += write_log(fs, copy, identity_of(folder, partition), _opening())
        finally:
            copy.close()
    fs.sync_directory(folder)
    return missing


def _identities(
    fs: FileSystem, metadata_directory: str, topic: FollowedTopic
) -> Callable[[str, int], LogIdentity]:
    meta = read_meta_properties(fs, metadata_directory)
    hash_key = fs.read_bytes(join(metadata_directory, HASH_KEY))

    def identity(folder: str, partition: int) -> LogIdentity:
        return LogIdentity(
            topic_partition=TopicPartition(topic.name, partition),
            topic_id=topic.id,
            directory=join(folder, str(partition)),
            directory_id="" if meta is None else meta.directory_id,
            hash_key=hash_key,
        )

    return identity


def _opening() -> LogOpening:
    return LogOpening(
        leader_epoch=Epoch(0),
        background=lambda work: work(),
        on_failure=_ignore,
        now_ms=time.time_ns() // 1_000_000,
        is_clean=False,
    )


def _ignore(error: StorageError) -> None:
    """The log that failed raises the same error to its caller."""
