"""The groups that this broker coordinates, and the load state of their partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from protocol.internal_topics.consumer_group_records import group_of
from protocol.internal_topics.group_records import GroupMetadataValue
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import CoordinatorTopic
from server.coordination.groups.classic.group import Group, GroupSettings
from server.coordination.groups.classic.restore import restored
from server.coordination.groups.committed_offsets import CommittedOffsets
from server.coordination.groups.consumer.mixed_group import MixedGroup
from server.coordination.groups.consumer.settings import ConsumerSettings
from server.coordination.groups.consumer.state import state_of
from server.coordination.groups.consumer.topic_catalog import TopicCatalog
from server.coordination.groups.group_entry import AnyGroup, GroupEntry
from server.coordination.groups.groups_by_prefix import GroupsByPrefix
from server.coordination.groups.loading import LoadedPartition, load_partition
from server.coordination.partition_loads import PartitionLoads
from server.runtime.clock import Clock, SteadyClock
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.coordination.groups")


@loop_thread
class GroupTable:
    """The groups by id."""

    __slots__ = (
        "_by_prefix",
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
        """The clock of groups; it never goes back."""
        # State
        self._entries: dict[str, GroupEntry] = {}
        self._by_prefix = GroupsByPrefix(self._entries)
        self._waiting: dict[tuple[int, int], set[str]] = {}
        """Groups with pending offsets, by partition and producer."""
        self.loads = PartitionLoads(topic.partitions_count, _log)

    # Loading.

    def start(self, *, on_loaded: Callable[[GroupEntry], None]) -> None:
        """Start to load the stored groups.

        Args:
            on_loaded: called with each group that has, or had, members.
        """

        async def load(partition: int) -> None:
            loaded = await load_partition(self._topic, partition)
            for entry in self._take_over(loaded):
                on_loaded(entry)

        self.loads.start(load)

    def _take_over(self, loaded: LoadedPartition) -> Iterator[GroupEntry]:
        """Take over the loaded groups. Each member gets a full session from now on."""
        for group_id, offsets in loaded.offsets.items():
            self._add(group_id, offsets)
            for producer_id in offsets.producers():
                self.add_waiting(group_id, producer_id)
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

    def add_waiting(self, group_id: str, producer_id: int) -> None:
        """Note that a group has offsets in a producer's open transaction."""
        place = (self._topic.partition_of(group_id), producer_id)
        self._waiting.setdefault(place, set()).add(group_id)

    def take_waiting(self, partition: int, producer_id: int) -> list[GroupEntry]:
        """Returns the groups with offsets in a transaction that has ended, and removes the note."""
        groups = self._waiting.pop((partition, producer_id), ())
        return [entry for each in groups if (entry := self._entries.get(each)) is not None]

    # Groups.

    def __len__(self) -> int:
        return len(self._entries)

    @any_thread
    def entries(self) -> Iterator[GroupEntry]:
        """Returns an iterator over all groups; the table may change meanwhile."""
        return iter(list(self._entries.values()))

    def find(self, group_id: str) -> GroupEntry | ErrorCode | None:
        """Returns a group; None if it does not exist; an error while its partition is loading."""
        entry = self._entries.get(group_id)
        if entry is not None or not self._topic.partitions_count:
            return entry
        return self.loads.error(self._topic.partition_of(group_id)) or None

    def create(self, group_id: str) -> GroupEntry:
        """Create a group that does not exist yet."""
        assert group_id not in self._entries
        return self._add(group_id, CommittedOffsets())

    def forget(self, entry: GroupEntry) -> None:
        """Remove a group from the table."""
        if self._entries.get(entry.group.group_id) is entry:
            del self._entries[entry.group.group_id]
            self._by_prefix.removed(entry.group.group_id)

    def are_loaded(self, patterns: Sequence[str]) -> bool:
        """Returns whether all groups that names, or prefixes with `*`, could mean are loaded."""
        if self.loads.is_complete or not self._topic.partitions_count:
            return True
        return not any(
            each.endswith("*") or self.loads.error(self._topic.partition_of(each))
            for each in patterns
        )

    def named(self, patterns: Sequence[str]) -> Iterator[GroupEntry]:
        """Yields the loaded groups that names, or prefixes with `*`, mean; one may come twice."""
        for pattern in patterns:
            if pattern.endswith("*"):
                yield from self._by_prefix.matching(pattern[:-1])
            elif (entry := self._entries.get(pattern)) is not None:
                yield entry

    def as_stored(self, entry: GroupEntry) -> AnyGroup:
        """Returns the group in the state of its last durable records."""
        group_id, now_ms = entry.group.group_id, self.now_ms()
        records = tuple(entry.stored())
        if not records:
            return self.new_classic_group(group_id)
        for record in records:
            if isinstance(record.value, GroupMetadataValue):
                return restored(group_id, record.value, self.settings, now_ms=now_ms)
        return MixedGroup(group_id, self.consumer_settings, self._topics, state_of(records))

    def new_classic_group(self, group_id: str) -> Group:
        """Returns an empty group of the classic protocol."""
        return Group(group_id, self.settings, now_ms=self.now_ms())

    def new_consumer_group(self, group_id: str) -> MixedGroup:
        """Returns an empty group of the consumer protocol."""
        return MixedGroup(group_id, self.consumer_settings, self._topics)

    def _add(self, group_id: str, offsets: CommittedOffsets) -> GroupEntry:
        entry = GroupEntry(self.new_classic_group(group_id), offsets)
        self._entries[group_id] = entry
        self._by_prefix.added(group_id, entry)
        return entry
