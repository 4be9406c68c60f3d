"""What members ask of groups of the consumer protocol: heartbeats. Lives on the event loop.

The first heartbeat makes the group; an empty one of the classic protocol becomes one of this, and
keeps what it has committed. With members it does not: `group.consumer.migration.policy` is `disabled`.

Source: Apache Kafka, GroupMetadataManager.java (getOrMaybeCreateConsumerGroup).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from protocol.error_codes import ErrorCode
from server.groups.consumer_group import ConsumerGroup
from server.groups.consumer_member import JOINING
from server.groups.coordinator import GroupCoordinator, at_once
from server.groups.events import Beat
from server.groups.group_checks import is_empty
from server.groups.group_entry import GroupEntry
from server.groups.outcome import Beaten, Outcome


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
        refused = _refused(group_id, entry, beat)
        if refused is not None:
            text = refused
            return at_once(Beaten(error_code=ErrorCode.GROUP_ID_NOT_FOUND, message=text))
        entry = entry or self._groups.table.create(group_id)
        return self._groups.step(entry, lambda ticket: self._step(entry, beat, ticket), Beaten)

    def _step(self, entry: GroupEntry, beat: Beat, ticket: object) -> Outcome:
        now_ms = self._groups.table.now_ms()
        if isinstance(entry.group, ConsumerGroup):
            return entry.group.heartbeat(beat, ticket, now_ms=now_ms)
        group = self._groups.table.new_consumer_group(entry.group.group_id)
        outcome = group.heartbeat(beat, ticket, now_ms=now_ms)
        if not outcome.records:
            # The member was refused: the group stays what it is.
            return outcome
        was_written = bool(entry.writes) or any(entry.stored())
        tombstones = entry.tombstones() if was_written else ()
        entry.group = group
        return replace(outcome, records=(*tombstones, *outcome.records))


def _refused(group_id: str, entry: GroupEntry | None, beat: Beat) -> str | None:
    """Why there is no such group for the member; None if there is, or it makes one."""
    if entry is None:
        return None if beat.member_epoch == JOINING else f"Group {group_id} not found."
    if isinstance(entry.group, ConsumerGroup):
        return None
    if beat.member_epoch != JOINING:
        return f"Group {group_id} is not a consumer group."
    if not is_empty(entry.group):
        return (
            f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is"
            " disabled."
        )
    return None
