"""What members ask of groups of the consumer protocol: heartbeats. Lives on the event loop.

The first heartbeat makes the group. One of the classic protocol becomes one of this, and keeps what it
has committed; with members, if `group.consumer.migration.policy` says so.

Source: Apache Kafka, GroupMetadataManager.java (getOrMaybeCreateConsumerGroup).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from protocol.error_codes import ErrorCode
from server.at_once import at_once
from server.groups.consumer_group import ConsumerGroup
from server.groups.consumer_member import JOINING
from server.groups.coordinator import GroupCoordinator
from server.groups.events import Beat
from server.groups.group import Group
from server.groups.group_checks import is_empty
from server.groups.group_entry import GroupEntry
from server.groups.outcome import Answer, Beaten, Outcome
from server.groups.protocol_changes import UPGRADES, CannotUpgrade, upgrade


class ConsumerCommands:
    """Heartbeats, over the coordinator that all groups share."""

    __slots__ = ("_groups",)

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def heartbeat(self, group_id: str, beat: Beat) -> Awaitable[Beaten]:
        """Let a member live, join or leave; what is returned resolves once that is durable."""
        if not await self._groups.has_topic(group_id):
            return at_once(Beaten(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        entry = self._groups.find(group_id)
        if isinstance(entry, ErrorCode):
            return at_once(Beaten(error_code=entry, message=entry.message))
        refused = self._refused(group_id, entry, beat)
        if refused is not None:
            return at_once(_no_group(refused))
        entry = entry or self._groups.table.create(group_id)
        return self._groups.step(entry, lambda ticket: self._step(entry, beat, ticket), Beaten)

    def _step(self, entry: GroupEntry, beat: Beat, ticket: object) -> Outcome:
        now_ms = self._groups.table.now_ms()
        if isinstance(entry.group, ConsumerGroup):
            return entry.group.heartbeat(beat, ticket, now_ms=now_ms)
        try:
            return self._changing_step(entry, entry.group, beat, ticket)
        except CannotUpgrade as error:
            refusal = _no_group(f"{_cannot_upgrade(entry.group.group_id)} {error}.")
            return Outcome(answers=(Answer(ticket=ticket, value=refusal),))

    def _changing_step(self, entry: GroupEntry, old: Group, beat: Beat, ticket: object) -> Outcome:
        """The step of a member that makes a group of the classic protocol one of this. Raises
        CannotUpgrade."""
        now_ms = self._groups.table.now_ms()
        group = self._groups.table.new_consumer_group(old.group_id)
        records = () if is_empty(old) else upgrade(old, group, now_ms=now_ms)
        # From here on the sessions of the members count.
        group.expire(now_ms)
        outcome = group.heartbeat(beat, ticket, now_ms=now_ms)
        if not outcome.records:
            # The member was refused: the group stays what it is.
            return replace(outcome, deadline_ms=None)
        was_written = bool(entry.writes) or any(entry.stored())
        tombstones = entry.tombstones() if was_written else ()
        # Who waits for the others, or for the leader, joins again.
        waiting = old.abandon(ErrorCode.REBALANCE_IN_PROGRESS)
        entry.group = group
        return replace(
            outcome,
            answers=(*waiting.answers, *outcome.answers),
            records=(*tombstones, *records, *outcome.records),
        )

    def _refused(self, group_id: str, entry: GroupEntry | None, beat: Beat) -> str | None:
        """Why there is no such group for the member; None if there is, or it makes one."""
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


def _no_group(why: str) -> Beaten:
    return Beaten(error_code=ErrorCode.GROUP_ID_NOT_FOUND, message=why)


def _cannot_upgrade(group_id: str) -> str:
    return f"Cannot upgrade classic group {group_id} to consumer group because"
