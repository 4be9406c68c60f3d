"""The asyncio shell around groups: turns requests into steps, which `group_steps.py` carries out.

    request -> loaded? -> group.step(event, now) -> outcome: records, answers, deadline
                                                       |        |         |
                              appended to the group's partition |   one timer for all
                              durable ------------------------> answered

Only the event loop touches groups, and a step does not await, so a group handles one event at a time.

Source: Apache Kafka, GroupCoordinatorService.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence

from protocol.wire.error_codes import ErrorCode
from server.config.group_config import GroupConfig
from server.config.group_overrides import GroupTimes
from server.coordination.coordinator_topic import (
    OFFSETS_TOPIC,
    CoordinatorTopic,
)
from server.coordination.groups.classic.group import Group, GroupSettings
from server.coordination.groups.committed_offsets import tombstone_batches
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.settings import ConsumerSettings
from server.coordination.groups.events import NO_MEMBER, Join, Leave, LeaveKey, Sync
from server.coordination.groups.group_entry import AnyGroup, GroupEntry
from server.coordination.groups.group_steps import GroupSteps
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.holds import TombstoneHolds
from server.coordination.groups.offset_checks import delete_error
from server.coordination.groups.outcome import (
    Joined,
    Left,
    Synced,
)
from server.durability.group_commit import GroupCommit
from server.runtime.at_once import at_once
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.runtime.turns import Pace
from server.topics.topics import Topics
from server.views.readable_topics import ReadableTopics
from storage.files.errors import StorageError

_log = logging.getLogger("server.coordination.groups")


class GroupCoordinator:
    """Handles the requests of clients to groups, except those for offsets."""

    __slots__ = ("holds", "steps", "table", "topic")

    def __init__(
        self,
        topic: CoordinatorTopic,
        table: GroupTable,
        holds: TombstoneHolds,
        *,
        assigning: Executor,
    ) -> None:
        """Serve the groups of a table.

        Args:
            holds: which tombstones these groups hold.
            assigning: the thread for steps that take long.
        """
        # Constant after construction
        self.topic = topic
        self.table = table
        self.holds = holds
        self.steps = GroupSteps(topic, table, assigning=assigning)

    def start(self) -> None:
        """Start to load the groups."""
        self.table.start(on_loaded=self.steps.start_sessions)

    async def stop(self) -> None:
        """Fail all waiting requests and wait until pending writes are durable."""
        self.steps.is_stopping = True
        await self.table.loads.stop()
        await self.steps.stop()

    # Members.

    async def join(self, group_id: str, join: Join) -> Awaitable[Joined]:
        """Let a member join. The result resolves when the next generation begins."""
        if not await self.has_topic(group_id):
            return at_once(Joined(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        entry = self.steps.find(group_id)
        if entry is None and join.member_id == NO_MEMBER:
            entry = self.table.create(group_id)
        if not isinstance(entry, GroupEntry):
            code = entry or ErrorCode.UNKNOWN_MEMBER_ID
            return at_once(Joined(error_code=code, member_id=join.member_id))
        group, now_ms = self._classic_group_of(entry), self.table.now_ms()
        names = () if join.subscription is None else join.subscription.topic_names
        if isinstance(group, ConsumerGroup) and group.assigns_many(names):
            joined: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
            error = await self.steps.large_step(
                entry, lambda group: group.join(join, joined, now_ms=now_ms)
            )
            return at_once(Joined(error_code=error, member_id=join.member_id)) if error else joined
        return self.steps.step(
            entry, lambda ticket: group.join(join, ticket, now_ms=now_ms), Joined
        )

    def _classic_group_of(self, entry: GroupEntry) -> AnyGroup:
        """Returns the group for a classic member. Converts a consumer group without members to the
        classic protocol; it keeps its committed offsets."""
        if isinstance(entry.group, ConsumerGroup) and not entry.group.data.members:
            tombstones = entry.tombstones()
            entry.group = self.table.new_classic_group(entry.group.group_id)
            self.steps.write(entry, tombstones)
        return entry.group

    def sync(self, group_id: str, sync: Sync) -> Awaitable[Synced]:
        """Return a member's assignment. The result resolves once the leader has sent the assignments."""
        entry = self.steps.find(group_id)
        if not isinstance(entry, GroupEntry):
            return at_once(Synced(error_code=entry or ErrorCode.UNKNOWN_MEMBER_ID))
        group, now_ms = entry.group, self.table.now_ms()
        return self.steps.step(
            entry, lambda ticket: group.sync(sync, ticket, now_ms=now_ms), Synced
        )

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Renew a member's session."""
        entry = self.steps.find(group_id)
        if entry is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The group may exist, so the member must not be made to rejoin.
            return ErrorCode.NONE
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.UNKNOWN_MEMBER_ID
        group, now_ms = entry.group, self.table.now_ms()
        if isinstance(group, Group):
            return group.heartbeat(member_id, instance_id, generation, now_ms=now_ms)
        code, outcome = group.classic_heartbeat(member_id, instance_id, generation, now_ms=now_ms)
        self.steps.carry_out(entry, outcome)
        return code

    async def leave(
        self, group_id: str, leaving: Sequence[Leave], pace: Pace
    ) -> Awaitable[Left] | ErrorCode:
        """Remove members in one step. Returns an error if the whole request fails."""
        entry = self.steps.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        members: dict[LeaveKey, Leave] = {}
        if entry is not None:
            async for each in pace.paced(leaving):
                if each.key not in members and entry.group.may_leave(each):
                    members[each.key] = each
        if entry is None or not members or self.steps.find(group_id) is not entry:
            return _leave_answer(at_once(Left(error_codes=())), leaving, {}, pace)
        group, now_ms = entry.group, self.table.now_ms()
        if isinstance(group, ConsumerGroup) and group.assigns_many():
            gone: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
            error = await self.steps.large_step(
                entry, lambda group: group.leave(members.values(), gone, now_ms=now_ms)
            )
            if error:
                return error
            left: Awaitable[Left] = gone
        else:
            left = self.steps.step(
                entry, lambda ticket: group.leave(members.values(), ticket, now_ms=now_ms), Left
            )
        return _leave_answer(
            left, leaving, members, pace, is_consumer=isinstance(group, ConsumerGroup)
        )

    # Groups.

    async def has_topic(self, group_id: str) -> bool:
        """Create `__consumer_offsets` if it is missing. Returns whether it exists."""
        try:
            await self.topic.ensure()
        except StorageError as error:
            _log.warning("group %r: %s", group_id, error)
            return False
        return True

    async def has_room(self, group_id: str, size: int) -> bool:
        """Returns whether a group's record of `size` bytes fits into a batch; True if that is unknown.
        Callers ask before they build the record, which takes long."""
        try:
            await self.topic.ensure()
            log = self.topic.log_of(self.topic.partition_of(group_id))
        except StorageError:
            return True
        return size <= log.config.max_message_bytes

    def describe(self, group_id: str) -> AnyGroup | ErrorCode | None:
        """Returns a group in its current state; None if it does not exist."""
        entry = self.steps.find(group_id)
        return entry.group if isinstance(entry, GroupEntry) else entry

    def groups(self) -> list[AnyGroup] | ErrorCode:
        """Returns all groups, or an error while some partitions are still loading."""
        if self.steps.is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.table.loads.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [entry.group for entry in self.table.entries()]

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and all its committed offsets."""
        entry = self.steps.find(group_id)
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.GROUP_ID_NOT_FOUND
        try:
            # Commits in flight must also be deleted.
            await self.wait_for_commits(entry)
            error = delete_error(entry.group)
            if self.holds.is_live_link(entry, self.table.now_ms()):
                error = ErrorCode.NON_EMPTY_GROUP
            if error is ErrorCode.NONE:
                await self._write_tombstones(entry)
        except StorageError as error_of_disk:
            _log.warning("group %r could not be deleted: %s", group_id, error_of_disk)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if entry.is_vacant:
            self.table.forget(entry)
        return error

    async def wait_for_commits(self, entry: GroupEntry) -> None:
        """Wait until no commit of a group is in flight. Raises StorageError."""
        while entry.commits:
            await self.topic.settle(self.topic.partition_of(entry.group.group_id))
            await asyncio.sleep(0)

    async def _write_tombstones(self, entry: GroupEntry) -> None:
        """Append all tombstones before anything else of the group; apply them once durable."""
        group_id = entry.group.group_id
        batches = (*tombstone_batches(group_id, entry.offsets.places()), entry.tombstones())
        offsets = await asyncio.gather(*(self.steps.append(entry, batch) for batch in batches))
        for batch, first_offset in zip(batches, offsets, strict=True):
            entry.offsets.apply(batch, first_offset)
            entry.note_stored(batch, first_offset)


def coordinator_of(
    topics: Topics,
    readable: ReadableTopics,
    group_commit: GroupCommit,
    config: GroupConfig,
    *,
    clock: Clock,
    own_times: Mapping[str, GroupTimes],
    loading: Executor,
    assigning: Executor,
) -> GroupCoordinator:
    """Returns the coordinator of a broker's groups.

    Args:
        readable: what groups can subscribe to, and whose tombstones they can hold.
        own_times: the times of groups with their own configuration.
        loading: the threads that load partitions.
        assigning: the thread for steps that take long.
    """
    topic = CoordinatorTopic(
        OFFSETS_TOPIC,
        topics,
        group_commit,
        clock,
        partitions_count=config.offsets_topic_num_partitions,
        segment_bytes=config.offsets_topic_segment_bytes,
        loading=loading,
    )
    settings = GroupSettings(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        size_max=config.group_max_size,
    )
    consumer_settings = ConsumerSettings(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        size_max=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        migration_policy=config.group_consumer_migration_policy,
        own_times=own_times,
    )
    table = GroupTable(topic, settings, clock, consumer_settings=consumer_settings, topics=readable)
    return GroupCoordinator(topic, table, TombstoneHolds(table, readable), assigning=assigning)


async def _leave_answer(
    left: Awaitable[Left],
    leaving: Sequence[Leave],
    members: Mapping[LeaveKey, Leave],
    pace: Pace,
    *,
    is_consumer: bool = False,
) -> Left:
    """Returns the result for every member named in the request. If a member is named twice, a classic
    group reports the second one as unknown; a consumer group gives the same answer twice, like Kafka's.
    """
    codes = dict(zip(members, (await left).error_codes, strict=True))
    answered: list[ErrorCode] = []
    async for each in pace.paced(leaving):
        code = codes.get(each.key, ErrorCode.UNKNOWN_MEMBER_ID)
        answered.append(code)
        if code is ErrorCode.NONE and not is_consumer:
            del codes[each.key]
    return Left(error_codes=tuple(answered))
