"""Turns the directory of a primary into that of a standby: its topics become mirrors of the new primary.

    rejoin.json          {"version": 1}: durable before anything changes
    the cluster's store  each topic becomes a mirror with its own id; the coordinators' topics are no
                         longer topics
    the node's store     forgets where their logs are, and that the broker was fenced
    <topic>.before/      the directories of the coordinators' topics: what groups had committed here
                         only; with a number if an earlier rejoin has left one
    standby/has-led      written: logs may have records of their own
    rejoin.json          removed

Every step can be repeated: a start as a standby does, until the last one is done. The logs of all other
topics stay where they are; the link compares them with the new primary's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

import msgspec

from server.config.standby_config import FENCED_BY
from server.metadata.store import Delete, Entry, Put
from server.replication.link_spec import STANDBY_LINK
from server.runtime.executors import Executor
from server.topics.keys import PLACED, TOPICS, topic_value
from server.topics.mirrors import COMPACTION, LINK, SOURCE_ID
from server.topics.start import ClusterTopic, read_topics
from server.topics.stores import MetadataStores
from server.topics.topic import INTERNAL_TOPICS
from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem, unlink_if_there
from storage.files.paths import REJOIN, STANDBY, join, topic_directory, topic_id_text
from storage.files.put_aside import put_aside
from storage.threads import loop_thread

_log = logging.getLogger("server.standby")

HAS_LED = "has-led"
"""In `standby/`: this was a primary's directory."""
VERSION = 1


class Rejoin(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that is becoming a standby's."""

    version: int = VERSION


def begin_rejoin(fs: FileSystem, directory: str) -> None:
    """Commit to becoming a standby. Raises DiskError."""
    fs.replace_durably(join(directory, REJOIN), msgspec.json.encode(Rejoin()))


def read_rejoin(fs: FileSystem, directory: str) -> Rejoin | None:
    """Returns what has begun in a metadata directory; None if nothing has.

    Raises:
        DamagedFile, FormatFromTheFuture: it cannot be read.
        DiskError: the disk failed.
    """
    path = join(directory, REJOIN)
    try:
        found = msgspec.json.decode(fs.read_bytes(path), type=Rejoin)
    except MissingFile:
        return None
    except msgspec.DecodeError as error:
        raise DamagedFile(path, str(error)) from error
    if found.version > VERSION:
        raise FormatFromTheFuture(path, found.version, VERSION)
    return found


def has_led(fs: FileSystem, directory: str) -> bool:
    """Returns whether a standby's directory was a primary's: its logs may have records of their own."""
    return fs.exists(join(join(directory, STANDBY), HAS_LED)) or fs.exists(join(directory, REJOIN))


@loop_thread
class RejoinedStart:
    """The start of a standby that finishes a rejoin."""

    __slots__ = ("_directories", "_directory", "_fs", "_upkeep")

    def __init__(
        self,
        fs: FileSystem,
        directories: Iterable[str],
        directory: str,
        upkeep: Executor,
    ) -> None:
        """
        Args:
            directories: all log directories.
            directory: the one with the metadata.
        """
        # Constant after construction
        self._fs = fs
        self._directories = tuple(directories)
        self._directory = directory
        self._upkeep = upkeep

    async def settle_stores(self, stores: MetadataStores, node_config_key: str) -> None:
        """Make the topics mirrors, put the coordinators' logs aside, and end the rejoin.

        Raises:
            StorageError: a store or the disk failed; the next start tries again.
        """
        stored = await read_topics(stores.cluster, stores.node, self._upkeep)
        internal = [each for each in stored.placed.values() if each.name in INTERNAL_TOPICS]
        await stores.cluster.txn((), as_mirrors(stored.topics))
        ids = {each.name: each.id for each in stored.topics}
        ids |= {each.name: each.id for each in internal}
        folders = [topic_directory(name, ids[name]) for name in ids if name in INTERNAL_TOPICS]
        await self._upkeep.run(_put_aside, self._fs, self._directories, folders)
        forgotten = [Delete(key=PLACED + topic_id_text(each.id)) for each in internal]
        properties = await stores.node.get(node_config_key)
        unfenced = [] if properties is None else [_without_fence(properties)]
        await stores.node.txn((), [*forgotten, *unfenced])
        await self._upkeep.run(_end, self._fs, self._directory)
        _log.warning("%s: it is a standby's directory now", self._directory)


def _put_aside(fs: FileSystem, directories: Iterable[str], folders: Iterable[str]) -> None:
    """Move the directories of topics out of the way. Can be repeated."""
    for directory in directories:
        for folder in folders:
            path = join(directory, folder)
            if fs.exists(path):
                put_aside(fs, path)
        fs.sync_directory(directory)


def _end(fs: FileSystem, directory: str) -> None:
    fs.replace_durably(join(join(directory, STANDBY), HAS_LED), b"")
    unlink_if_there(fs, join(directory, REJOIN))
    fs.sync_directory(directory)


def as_mirrors(topics: Iterable[ClusterTopic]) -> list[Put | Delete]:
    """Returns what makes the topics of a cluster mirrors of themselves: pure.

    Each keeps its id; the coordinators' topics are no topics any longer.
    """
    return [
        Delete(key=TOPICS + topic.name)
        if topic.name in INTERNAL_TOPICS
        else Put(
            key=TOPICS + topic.name,
            value=topic_value(topic.id, topic.partitions_count, _of_mirror(topic)),
        )
        for topic in topics
    ]


def _without_fence(properties: Entry) -> Put:
    """Returns what lets this broker serve again, once it is promoted."""
    content = json.loads(properties.value)
    content.pop(FENCED_BY, None)
    return Put(key=properties.key, value=json.dumps(content, separators=(",", ":")))


def _of_mirror(topic: ClusterTopic) -> dict[str, str]:
    own = {LINK: STANDBY_LINK, SOURCE_ID: topic_id_text(topic.id), COMPACTION: "on"}
    return {**topic.overrides, **own}
