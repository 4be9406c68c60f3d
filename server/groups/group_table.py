"""Every group that this broker coordinates, and which partitions of theirs are still being read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from protocol.consumer_group_records import group_of
from protocol.error_codes import ErrorCode
from protocol.group_records import GroupMetadataValue
from server.clock import Clock, SteadyClock
from server.coordinator_topic import CoordinatorTopic
from server.groups.committed_offsets import CommittedOffsets
from server.groups.consumer_group import ConsumerSettings
from server.groups.consumer_state import state_of
from server.groups.group import Group, GroupSettings
from server.groups.group_entry import AnyGroup, GroupEntry
from server.groups.loading import LoadedPartition, load_partition
from server.groups.mixed_group import MixedGroup
from server.groups.stored_group import restored
from server.groups.topic_catalog import TopicCatalog
from server.partition_loads import PartitionLoads

_log = logging.getLogger("server.groups")


class GroupTable:
    """The groups by their ids. Lives on the event loop."""

    __slots__ = (
        "_entries",
        "_topic",
        "_topics",
        "_waiting",
        "consumer_settings",
        "loads",
        "now_ms",
        "settings",
    )

    def __init__(
        self,
        topic: CoordinatorTopic,
        settings: GroupSettings,
        clock: Clock,
        *,
        consumer_settings: ConsumerSettings,
        topics: TopicCatalog,
    ) -> None:
        # Constant after construction
        self._topic = topic
        self._topics = topics
        self.settings = settings
        self.consumer_settings = consumer_settings
        self.now_ms = SteadyClock(clock).now_ms
        """The time of groups."""
        # State
        self._entries: dict[str, GroupEntry] = {}
        self._waiting: dict[tuple[int, int], set[str]] = {}
        """Groups that wait for a transaction to end, by partition and producer."""
        self.loads = PartitionLoads(topic.partitions_count, _log)

    # Loading.

    def start(self, *, on_loaded: Callable[[GroupEntry], None]) -> None:
        """Begin to read what was written before.

        Args:
            on_loaded: is told of each group that has, or had, members.
        """

        async def load(partition: int) -> None:
            loaded = await load_partition(self._topic, partition)
            for entry in self._taken(loaded):
                on_loaded(entry)

        self.loads.start(load)

    def _taken(self, loaded: LoadedPartition) -> Iterator[GroupEntry]:
        """Serve groups from here on. Whoever was a member has a whole session from now."""
        for group_id, offsets in loaded.offsets.items():
            self._entries[group_id] = self._new_entry(group_id, offsets)
            for producer_id in offsets.producers():
                self.wait(group_id, producer_id)
        found: dict[str, GroupEntry] = {}
        for record in loaded.records:
            group_id = group_of(record.key)
            entry = self._entries.get(group_id) or self.create(group_id)
            entry.note_stored((record,), 0)
            found[group_id] = entry
        for entry in found.values():
            entry.group = self.as_stored(entry)
            yield entry

    # Transactions.

    def wait(self, group_id: str, producer_id: int) -> None:
        """Note that a group waits for a producer's transaction to end."""
        place = (self._topic.partition_of(group_id), producer_id)
        self._waiting.setdefault(place, set()).add(group_id)

    def waited(self, partition: int, producer_id: int) -> list[GroupEntry]:
        """The groups that have waited for a transaction that ends in a partition."""
        groups = self._waiting.pop((partition, producer_id), ())
        return [entry for each in groups if (entry := self._entries.get(each)) is not None]

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
        return self.loads.error(self._topic.partition_of(group_id)) or None

    def create(self, group_id: str) -> GroupEntry:
        """Begin a group that is not there."""
        assert group_id not in self._entries
        entry = self._entries[group_id] = self._new_entry(group_id, CommittedOffsets())
        return entry

    def forget(self, entry: GroupEntry) -> None:
        """Know nothing of a group any more."""
        if self._entries.get(entry.group.group_id) is entry:
            del self._entries[entry.group.group_id]

    def as_stored(self, entry: GroupEntry) -> AnyGroup:
        """The group as its last durable records say."""
        group_id, now_ms = entry.group.group_id, self.now_ms()
        records = tuple(entry.stored())
        if not records:
            return self.new_classic_group(group_id)
        for record in records:
            if isinstance(record.value, GroupMetadataValue):
                return restored(group_id, record.value, self.settings, now_ms=now_ms)
        return MixedGroup(group_id, self.consumer_settings, self._topics, state_of(records))

    def new_classic_group(self, group_id: str) -> Group:
        """One that nothing is known of but its name."""
        return Group(group_id, self.settings, now_ms=self.now_ms())

    def new_consumer_group(self, group_id: str) -> MixedGroup:
        """The same, of the consumer protocol."""
        return MixedGroup(group_id, self.consumer_settings, self._topics)

    def _new_entry(self, group_id: str, offsets: CommittedOffsets) -> GroupEntry:
        return GroupEntry(self.new_classic_group(group_id), offsets)
