"""Every group that this broker coordinates, and which partitions of theirs are still being read.

A partition's groups are not known before all of it has been read; then they are, and stay in memory.
One that cannot be read is not served: what a group has committed must not be taken for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupMetadataKey, GroupMetadataValue
from server.clock import Clock
from server.coordinator_topic import CoordinatorTopic
from server.groups.committed_offsets import CommittedOffsets
from server.groups.group import Group, GroupSettings
from server.groups.group_entry import GroupEntry
from server.groups.loading import LoadedPartition, load_partition
from server.groups.stored_group import restored
from storage.errors import StorageError

_log = logging.getLogger("server.groups")

LOADERS = 2
"""So many partitions are read at once."""


class GroupTable:
    """The groups by their ids. Lives on the event loop."""

    __slots__ = (
        "_clock",
        "_entries",
        "_failed",
        "_loaders",
        "_loading",
        "_settings",
        "_step_ms",
        "_topic",
    )

    def __init__(self, topic: CoordinatorTopic, settings: GroupSettings, clock: Clock) -> None:
        # Constant after construction
        self._topic = topic
        self._settings = settings
        self._clock = clock
        self._step_ms = clock.now_ms() - round(clock.monotonic() * 1000)
        # State
        self._entries: dict[str, GroupEntry] = {}
        self._loading: set[int] = set(range(topic.partitions_count))
        """Partitions that are not read yet."""
        self._failed: set[int] = set()
        """Partitions that could not be read."""
        self._loaders: list[asyncio.Task[None]] = []

    def now_ms(self) -> int:
        """The time of groups: ms since 1970, but it does not step when somebody sets the clock."""
        return self._step_ms + round(self._clock.monotonic() * 1000)

    # Loading.

    def start(self, *, on_loaded: Callable[[GroupEntry], None]) -> None:
        """Begin to read what was written before.

        Args:
            on_loaded: is told of each group that has, or had, members.
        """
        waiting = deque(sorted(self._loading))
        self._loaders = [
            asyncio.create_task(self._load_all(waiting, on_loaded)) for _ in range(LOADERS)
        ]

    async def stop(self) -> None:
        for loader in self._loaders:
            loader.cancel()
        for loader in self._loaders:
            with suppress(asyncio.CancelledError):
                await loader

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    async def loaded(self) -> None:
        """Wait until there is nothing to read any more."""
        if self._loaders:
            # Not `gather`: whoever stops waiting must not stop them.
            await asyncio.wait(self._loaders)

    async def _load_all(self, waiting: deque[int], on_loaded: Callable[[GroupEntry], None]) -> None:
        while waiting:
            partition = waiting.popleft()
            try:
                loaded = await load_partition(self._topic, partition)
                for entry in self._taken(loaded):
                    on_loaded(entry)
            except StorageError as error:
                _log.error("its groups are not served: %s", error)
                self._failed.add(partition)
            self._loading.discard(partition)

    def _taken(self, loaded: LoadedPartition) -> Iterator[GroupEntry]:
        """Serve groups from here on. Whoever was a member has a whole session from now."""
        for group_id, offsets in loaded.offsets.items():
            self._entries[group_id] = self._new_entry(group_id, offsets)
        for record in loaded.records:
            if not isinstance(record.key, GroupMetadataKey):
                continue
            assert isinstance(record.value, GroupMetadataValue)
            entry = self._entries.get(record.key.group) or self.create(record.key.group)
            entry.stored = record.value
            entry.group = self.as_stored(entry)
            yield entry

    # Groups.

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[GroupEntry]:
        """All groups; they may change meanwhile."""
        return iter(list(self._entries.values()))

    def find(self, group_id: str) -> GroupEntry | ErrorCode | None:
        """A group; None if there is none; an error while nobody can say."""
        entry = self._entries.get(group_id)
        if entry is not None or not self._topic.partitions_count:
            return entry
        partition = self._topic.partition_of(group_id)
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if partition in self._failed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def create(self, group_id: str) -> GroupEntry:
        """Begin a group that is not there."""
        assert group_id not in self._entries
        entry = self._entries[group_id] = self._new_entry(group_id, CommittedOffsets())
        return entry

    def forget(self, entry: GroupEntry) -> None:
        """Know nothing of a group any more."""
        if self._entries.get(entry.group.group_id) is entry:
            del self._entries[entry.group.group_id]

    def as_stored(self, entry: GroupEntry) -> Group:
        """The group as its last durable record says."""
        group_id, now_ms = entry.group.group_id, self.now_ms()
        if entry.stored is None:
            return Group(group_id, self._settings, now_ms=now_ms)
        return restored(group_id, entry.stored, self._settings, now_ms=now_ms)

    def _new_entry(self, group_id: str, offsets: CommittedOffsets) -> GroupEntry:
        return GroupEntry(Group(group_id, self._settings, now_ms=self.now_ms()), offsets)
