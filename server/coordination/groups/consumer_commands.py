"""Heartbeats of the consumer protocol.

The first heartbeat creates the group. It converts a group of the classic protocol, which keeps its
committed offsets; one with members only if `group.consumer.migration.policy` allows it.

Source: Apache Kafka, GroupMetadataManager.java (getOrMaybeCreateConsumerGroup).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Self

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import PreparedBatch
from server.coordination.groups.classic.group import Group
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.member import JOINING
from server.coordination.groups.consumer.mixed_group import MixedGroup
from server.coordination.groups.consumer.topic_patterns import TopicPatterns
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.events import Beat
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.large_steps import LargeStep
from server.coordination.groups.offset_checks import is_empty
from server.coordination.groups.outcome import Answer, HeartbeatAnswer, Outcome
from server.coordination.groups.protocol_changes import (
    UPGRADES,
    CannotUpgrade,
    ClassicMembers,
    upgrade,
)
from server.runtime.at_once import at_once
from server.runtime.turns import Pace

DECODED_AT_ONCE_BYTES = 64 << 10
"""More metadata of classic members is decoded in a thread."""


class ConsumerCommands:
    """Handles heartbeats with the coordinator that all groups share."""

    __slots__ = ("_groups", "_patterns", "_steps")

    def __init__(self, groups: GroupCoordinator, patterns: TopicPatterns) -> None:
        self._groups = groups
        self._steps = groups.steps
        self._patterns = patterns

    async def heartbeat(self, group_id: str, beat: Beat, pace: Pace) -> Awaitable[HeartbeatAnswer]:
        """Renew a member, or let it join or leave. The result resolves once that is durable."""
        if not await self._groups.has_topic(group_id):
            return at_once(HeartbeatAnswer(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        beat = await self._with_matches(group_id, beat, pace)
        entry = self._steps.find(group_id)
        if isinstance(entry, ErrorCode):
            return at_once(HeartbeatAnswer(error_code=entry, message=entry.message))
        refused = self._refusal(group_id, entry, beat)
        if refused is not None:
            return at_once(_no_group(refused))
        entry = entry or self._groups.table.create(group_id)
        if self._may_take_long(entry, beat):
            return await self._heartbeat_of_many(entry, beat)
        return self._steps.step(
            entry, lambda ticket: self._step(entry, beat, ticket), HeartbeatAnswer
        )

    def _may_take_long(self, entry: GroupEntry, beat: Beat) -> bool:
        """Returns whether a heartbeat's step needs a thread."""
        if isinstance(entry.group, ConsumerGroup):
            return entry.group.may_take_long(beat)
        group = self._groups.table.new_consumer_group(entry.group.group_id)
        metadata = sum(len(each.metadata) for m in entry.group.roster for each in m.protocols)
        return metadata > DECODED_AT_ONCE_BYTES or group.may_take_long(beat)

    async def _heartbeat_of_many(self, entry: GroupEntry, beat: Beat) -> Awaitable[HeartbeatAnswer]:
        """Carry out a heartbeat in a thread. The result is like `heartbeat`'s."""
        ticket: asyncio.Future[HeartbeatAnswer] = asyncio.get_running_loop().create_future()
        now_ms = self._groups.table.now_ms()

        def begin() -> LargeStep | None:
            if isinstance(entry.group, ConsumerGroup):
                return self._steps.on_copy(
                    entry,
                    entry.group,
                    lambda group: group.heartbeat(beat, ticket, now_ms=now_ms),
                )
            refused = self._refusal(entry.group.group_id, entry, beat)
            if refused is None:
                return self._change_on_copy(entry, entry.group, beat, ticket)
            self._steps.carry_out(entry, _refused(ticket, refused))
            return None

        try:
            error = await self._steps.large_steps.take(entry, begin)
        except CannotUpgrade as reason:
            return at_once(_no_group(f"{_cannot_upgrade(entry.group.group_id)} {reason}."))
        finally:
            self._steps.forget_if_vacant(entry)
        return at_once(HeartbeatAnswer(error_code=error)) if error else ticket

    async def _with_matches(self, group_id: str, beat: Beat, pace: Pace) -> Beat:
        """Returns the heartbeat with what its step needs of a large number of topics."""
        entry = self._steps.find(group_id)
        if isinstance(entry, GroupEntry) and isinstance(entry.group, ConsumerGroup):
            patterns = entry.group.patterns_to_match(beat)
        else:
            patterns = frozenset(filter(None, [beat.topic_regex]))
        if not patterns:
            return beat
        return replace(beat, matches=await self._patterns.match(patterns, beat.may_see, pace))

    def _step(self, entry: GroupEntry, beat: Beat, ticket: object) -> Outcome:
        now_ms = self._groups.table.now_ms()
        if isinstance(entry.group, ConsumerGroup):
            return entry.group.heartbeat(beat, ticket, now_ms=now_ms)
        try:
            return self._changing_step(entry, entry.group, beat, ticket)
        except CannotUpgrade as error:
            return _refused(ticket, f"{_cannot_upgrade(entry.group.group_id)} {error}.")

    def _changing_step(self, entry: GroupEntry, old: Group, beat: Beat, ticket: object) -> Outcome:
        """Carry out the heartbeat that converts a classic group to the consumer protocol. Raises
        CannotUpgrade."""
        now_ms = self._groups.table.now_ms()
        group = self._groups.table.new_consumer_group(old.group_id)
        outcome = _changed(_Old.of(entry, old), group, beat, ticket, now_ms)
        return self._replaced(entry, old, group, outcome)

    def _change_on_copy(
        self, entry: GroupEntry, old: Group, beat: Beat, ticket: object
    ) -> LargeStep:
        """Returns the same step for a thread."""
        now_ms, before = self._groups.table.now_ms(), _Old.of(entry, old)
        group = self._groups.table.new_consumer_group(old.group_id)
        ahead = group.copy()

        def finish(outcome: Outcome, prepared: PreparedBatch | None) -> None:
            ahead.replace(group)
            self._steps.carry_out(entry, self._replaced(entry, old, ahead, outcome), prepared)

        return LargeStep(take=lambda: _changed(before, ahead, beat, ticket, now_ms), finish=finish)

    def _replaced(
        self, entry: GroupEntry, old: Group, group: MixedGroup, outcome: Outcome
    ) -> Outcome:
        """Put the converted group in the old one's place. Returns the outcome of both."""
        if not outcome.records:
            # The member was refused, so the group is not converted.
            return replace(outcome, deadline_ms=None)
        # Members that wait for the others or for the leader have to join again.
        waiting = old.abandon(ErrorCode.REBALANCE_IN_PROGRESS)
        entry.group = group
        return replace(outcome, answers=(*waiting.answers, *outcome.answers))

    def _refusal(self, group_id: str, entry: GroupEntry | None, beat: Beat) -> str | None:
        """Returns why the group does not exist for this member; None if it exists or may be created."""
        if entry is None:
            return None if beat.member_epoch == JOINING else f"Group {group_id} not found."
        if isinstance(entry.group, ConsumerGroup):
            return None
        if beat.member_epoch != JOINING:
            return f"Group {group_id} is not a consumer group."
        settings = self._groups.table.consumer_settings
        if is_empty(entry.group):
            return None
        if settings.migration_policy not in UPGRADES:
            return f"{_cannot_upgrade(group_id)} online upgrade is disabled."
        if entry.group.members_count > settings.size_max:
            text = "the group size exceeds the consumer group maximum size."
            return f"{_cannot_upgrade(group_id)} {text}"
        return None


@dataclass(frozen=True, slots=True)
class _Old:
    """What a conversion needs of the classic group, which may change meanwhile."""

    members: ClassicMembers | None
    """None: there are none."""
    tombstones: tuple[GroupRecord, ...]
    """Delete its records."""

    @classmethod
    def of(cls, entry: GroupEntry, group: Group) -> Self:
        was_written = bool(entry.writes) or any(entry.stored())
        return cls(
            None if is_empty(group) else ClassicMembers.of(group),
            entry.tombstones() if was_written else (),
        )


def _changed(old: _Old, group: MixedGroup, beat: Beat, ticket: object, now_ms: int) -> Outcome:
    """Convert the old members, and carry out a heartbeat. Raises CannotUpgrade."""
    records = () if old.members is None else upgrade(old.members, group, now_ms=now_ms)
    # Start the sessions of the converted members.
    group.expire(now_ms)
    outcome = group.heartbeat(beat, ticket, now_ms=now_ms)
    if not outcome.records:
        return outcome
    return replace(outcome, records=(*old.tombstones, *records, *outcome.records))


def _refused(ticket: object, why: str) -> Outcome:
    return Outcome(answers=(Answer(ticket=ticket, value=_no_group(why)),))


def _no_group(why: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(error_code=ErrorCode.GROUP_ID_NOT_FOUND, message=why)


def _cannot_upgrade(group_id: str) -> str:
    return f"Cannot upgrade classic group {group_id} to consumer group because"
