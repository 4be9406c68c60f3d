"""The asyncio shell over groups: requests become steps, and what a step owes is done.

    request -> loaded? -> group.step(event, now) -> outcome: records, answers, deadline
                                                       |        |         |
                              appended to the group's partition |   one timer for all
                              durable ------------------------> answered

Only the event loop touches groups, and a step runs to its end, so a group's events come one at a
time. An answer waits until all that its group has written is durable (`group_entry.py`).

Source: Apache Kafka, GroupCoordinatorService.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord
from server.at_once import at_once
from server.clock import Clock
from server.coordinator_topic import OFFSETS_TOPIC, CoordinatorTopic, RecordsTooLarge
from server.deadlines import Deadlines
from server.executors import Executor
from server.group_commit import GroupCommit
from server.group_config import GroupConfig
from server.groups.committed_offsets import tombstone_batches
from server.groups.consumer_group import ConsumerGroup, ConsumerSettings, GroupTimes
from server.groups.events import Join, Leave, LeaveKey, Sync
from server.groups.group import Group, GroupSettings
from server.groups.group_checks import delete_error
from server.groups.group_entry import AnyGroup, GroupEntry, refused
from server.groups.group_table import GroupTable
from server.groups.member import NO_MEMBER
from server.groups.outcome import Answer, Beaten, Joined, Left, Outcome, Synced
from server.groups.protocol_changes import DOWNGRADES, downgrade, may_downgrade
from server.tasks import mistake, raising, spawn
from server.topics import Topics
from server.turns import Pace
from storage.errors import StorageError

_log = logging.getLogger("server.groups")

A = TypeVar("A", Joined, Synced, Left, Beaten)


class GroupCoordinator:
    """What clients ask of groups, but for their offsets."""

    __slots__ = ("_deadlines", "_is_stopping", "_under_way", "table", "topic")

    def __init__(self, topic: CoordinatorTopic, table: GroupTable) -> None:
        # Constant after construction
        self.topic = topic
        self.table = table
        self._deadlines = Deadlines(self.table.now_ms, self._time_is_up)
        # State
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def start(self) -> None:
        """Begin to read the groups back."""
        self.table.start(on_loaded=self._wait_for_members)

    async def stop(self) -> None:
        """Answer everybody who waits, and let what is being written become durable."""
        self._is_stopping = True
        await self.table.loads.stop()
        self._deadlines.stop()
        for entry in self.table.entries():
            self._owed(entry, entry.group.abandon(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if self._under_way:
            await asyncio.wait(self._under_way)

    # Members.

    async def join(self, group_id: str, join: Join) -> Awaitable[Joined]:
        """Let a member join; what is returned resolves when its generation begins."""
        if not await self.has_topic(group_id):
            return at_once(Joined(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        entry = self.find(group_id)
        if entry is None and join.member_id == NO_MEMBER:
            entry = self.table.create(group_id)
        if not isinstance(entry, GroupEntry):
            code = entry or ErrorCode.UNKNOWN_MEMBER_ID
            return at_once(Joined(error_code=code, member_id=join.member_id))
        group, now_ms = self._joined(entry), self.table.now_ms()
        return self.step(entry, lambda ticket: group.join(join, ticket, now_ms=now_ms), Joined)

    def _joined(self, entry: GroupEntry) -> AnyGroup:
        """The group for a member of the classic protocol; one of the other that has no members
        becomes one of this, keeping what it has committed."""
        if isinstance(entry.group, ConsumerGroup) and not entry.group.data.members:
            tombstones = entry.tombstones()
            entry.group = self.table.new_classic_group(entry.group.group_id)
            self._write(entry, tombstones)
        return entry.group

    def sync(self, group_id: str, sync: Sync) -> Awaitable[Synced]:
        """Give a member its assignment; what is returned resolves when the leader has given it."""
        entry = self.find(group_id)
        if not isinstance(entry, GroupEntry):
            return at_once(Synced(error_code=entry or ErrorCode.UNKNOWN_MEMBER_ID))
        group, now_ms = entry.group, self.table.now_ms()
        return self.step(entry, lambda ticket: group.sync(sync, ticket, now_ms=now_ms), Synced)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Note that a member lives."""
        entry = self.find(group_id)
        if entry is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # All is well as far as anybody knows.
            return ErrorCode.NONE
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.UNKNOWN_MEMBER_ID
        group, now_ms = entry.group, self.table.now_ms()
        if isinstance(group, Group):
            return group.heartbeat(member_id, instance_id, generation, now_ms=now_ms)
        code, outcome = group.classic_heartbeat(member_id, instance_id, generation, now_ms=now_ms)
        self._owed(entry, outcome)
        return code

    async def leave(
        self, group_id: str, leaving: Sequence[Leave], pace: Pace
    ) -> Awaitable[Left] | ErrorCode:
        """Let members go, in one step; an error for the whole request."""
        entry = self.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        members: dict[LeaveKey, Leave] = {}
        if entry is not None:
            async for each in pace.paced(leaving):
                if each.key not in members and entry.group.may_leave(each):
                    members[each.key] = each
        if entry is None or not members or self.find(group_id) is not entry:
            return _left(at_once(Left(error_codes=())), leaving, {}, pace)
        group, now_ms = entry.group, self.table.now_ms()
        left = self.step(
            entry, lambda ticket: group.leave(members.values(), ticket, now_ms=now_ms), Left
        )
        return _left(left, leaving, members, pace, is_consumer=isinstance(group, ConsumerGroup))

    # Groups.

    async def has_topic(self, group_id: str) -> bool:
        """Make `__consumer_offsets`, unless it is there; whether it is now."""
        try:
            await self.topic.ensure()
        except StorageError as error:
            _log.warning("group %r: %s", group_id, error)
            return False
        return True

    async def has_room(self, group_id: str, size: int) -> bool:
        """Whether a record of so many bytes may be written of a group. Tells before it is made, which
        takes long; True where nobody can say."""
        try:
            await self.topic.ensure()
            log = self.topic.log_of(self.topic.partition_of(group_id))
        except StorageError:
            return True
        return size <= log.config.max_message_bytes

    def describe(self, group_id: str) -> AnyGroup | ErrorCode | None:
        """A group as it is now; None if there is none."""
        entry = self.find(group_id)
        return entry.group if isinstance(entry, GroupEntry) else entry

    def groups(self) -> list[AnyGroup] | ErrorCode:
        """All groups; an error while some are not known yet."""
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.table.loads.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [entry.group for entry in self.table.entries()]

    async def delete(self, group_id: str) -> ErrorCode:
        """Forget a group without members, and all that it has committed."""
        entry = self.find(group_id)
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.GROUP_ID_NOT_FOUND
        try:
            # What is being committed has to go, too.
            await self.commits_are_durable(entry)
            error = delete_error(entry.group)
            if error is ErrorCode.NONE:
                await self._write_tombstones(entry)
        except StorageError as error_of_disk:
            _log.warning("group %r could not be deleted: %s", group_id, error_of_disk)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if entry.is_vacant:
            self.table.forget(entry)
        return error

    async def commits_are_durable(self, entry: GroupEntry) -> None:
        """Wait until no commit of a group is under way. Raises StorageError."""
        while entry.commits:
            await self.topic.settle(self.topic.partition_of(entry.group.group_id))
            await asyncio.sleep(0)

    async def _write_tombstones(self, entry: GroupEntry) -> None:
        """All of them are in the log before anything else of the group; they count once durable."""
        group_id = entry.group.group_id
        batches = (*tombstone_batches(group_id, entry.offsets.places()), entry.tombstones())
        offsets = await asyncio.gather(*(self.append(entry, batch) for batch in batches))
        for batch, first_offset in zip(batches, offsets, strict=True):
            entry.offsets.applied(batch, first_offset)
            entry.note_stored(batch, first_offset)

    # Steps.

    def find(self, group_id: str) -> GroupEntry | ErrorCode | None:
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.table.find(group_id)

    def step(
        self, entry: GroupEntry, step: Callable[[object], Outcome], answer_type: type[A]
    ) -> Awaitable[A]:
        """Carry out a step; what is returned resolves with its answer, once that may be given."""
        ticket: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._owed(entry, step(ticket))
        return ticket

    def _time_is_up(self, group_id: str) -> None:
        entry = self.table.find(group_id)
        if isinstance(entry, GroupEntry):
            self._owed(entry, entry.group.expire(self.table.now_ms()))

    def _wait_for_members(self, entry: GroupEntry) -> None:
        """Begin to count the sessions of a group that was read."""
        self._owed(entry, entry.group.expire(self.table.now_ms()))

    def _owed(self, entry: GroupEntry, outcome: Outcome) -> None:
        """Do what a step owes."""
        outcome = self._downgraded(entry, outcome)
        for note in outcome.notes:
            # It is in the words of clients.
            shown = note if note.isprintable() else repr(note)
            _log.info("group %r %s", entry.group.group_id, shown)
        self._deadlines.set(entry.group.group_id, outcome.deadline_ms)
        entry.held += outcome.answers
        if outcome.records:
            self._write(entry, outcome.records)
        if not entry.writes:
            self._settled(entry)

    def _downgraded(self, entry: GroupEntry, outcome: Outcome) -> Outcome:
        """What is owed, where the step has left only members of the classic protocol."""
        group = entry.group
        policy = self.table.consumer_settings.migration_policy
        if isinstance(group, Group) or not outcome.records or policy not in DOWNGRADES:
            return outcome
        if not may_downgrade(group) or group.members_count > self.table.settings.size_max:
            return outcome
        tombstones = entry.tombstones()
        entry.group = self.table.new_classic_group(group.group_id)
        further = downgrade(group, entry.group, now_ms=self.table.now_ms())
        return Outcome(
            answers=outcome.answers,
            records=(*outcome.records, *tombstones, *further.records),
            deadline_ms=further.deadline_ms,
            notes=(*outcome.notes, *further.notes),
        )

    def _write(self, entry: GroupEntry, records: Sequence[GroupRecord]) -> None:
        try:
            appended = self.append(entry, records)
        except Exception as error:  # noqa: BLE001 - as if it had failed later
            appended = raising(error)
        entry.writes += 1
        spawn(self._written(entry, appended, records), "group write", among=self._under_way)

    async def _written(
        self, entry: GroupEntry, appended: Awaitable[int], records: Sequence[GroupRecord]
    ) -> None:
        """Wait until records of a group itself are durable."""
        try:
            entry.note_stored(records, await appended)
        except StorageError as error:
            is_ours = isinstance(error, RecordsTooLarge)
            code = (
                ErrorCode.UNKNOWN_SERVER_ERROR if is_ours else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            _log.warning("group %r could not be written: %s", entry.group.group_id, error)
            entry.failure = code
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are answered
            mistake("group write", error)
            entry.failure = ErrorCode.UNKNOWN_SERVER_ERROR
        entry.writes -= 1
        if not entry.writes:
            self._settled(entry)

    def append(self, entry: GroupEntry, records: Sequence[GroupRecord]) -> Awaitable[int]:
        """Append now; what is returned raises whatever goes wrong."""
        return self.topic.append(self.topic.partition_of(entry.group.group_id), records)

    def _settled(self, entry: GroupEntry) -> None:
        """Everything that the group has written is durable, or failed: say what was held."""
        entry.forget_tombstones()
        held, entry.held = entry.held, []
        failure, entry.failure = entry.failure, None
        if failure is None:
            _give(held)
        else:
            abandoned = entry.group.abandon(failure)
            _give([_as_error(answer, failure) for answer in (*held, *abandoned.answers)])
            entry.group = self.table.as_stored(entry)
            self._wait_for_members(entry)
        if entry.is_vacant:
            self.table.forget(entry)


def coordinator_of(
    topics: Topics,
    group_commit: GroupCommit,
    config: GroupConfig,
    *,
    clock: Clock,
    own_times: Mapping[str, GroupTimes],
    loading: Executor,
) -> GroupCoordinator:
    """The coordinator of a broker's groups.

    Args:
        own_times: those of groups that have a configuration of their own.
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
    table = GroupTable(topic, settings, clock, consumer_settings=consumer_settings, topics=topics)
    return GroupCoordinator(topic, table)


async def _left(
    left: Awaitable[Left],
    leaving: Sequence[Leave],
    members: Mapping[LeaveKey, Leave],
    pace: Pace,
    *,
    is_consumer: bool = False,
) -> Left:
    """What became of everybody who was named. Whoever is named twice leaves a group of the classic
    protocol once, and is no member then; one of the consumer protocol answers alike, as Kafka's."""
    codes = dict(zip(members, (await left).error_codes, strict=True))
    answered: list[ErrorCode] = []
    async for each in pace.paced(leaving):
        code = codes.get(each.key, ErrorCode.UNKNOWN_MEMBER_ID)
        answered.append(code)
        if code is ErrorCode.NONE and not is_consumer:
            del codes[each.key]
    return Left(error_codes=tuple(answered))


def _give(answers: Sequence[Answer]) -> None:
    for answer in answers:
        ticket = answer.ticket
        assert isinstance(ticket, asyncio.Future)
        # Whoever asked may be gone.
        if not ticket.done():
            ticket.set_result(answer.value)


def _as_error(answer: Answer, error_code: ErrorCode) -> Answer:
    return Answer(ticket=answer.ticket, value=refused(answer.value, error_code))
