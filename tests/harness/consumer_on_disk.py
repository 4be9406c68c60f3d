"""A consumer group on a disk: members that join, send heartbeats and leave, with their latest
answers."""

from __future__ import annotations

from random import Random

from protocol.internal_topics.consumer_protocol import PROTOCOL_TYPE, Subscription, write
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.member import JOINING, LEAVING
from server.coordination.groups.consumer.state import ConsumerState
from server.coordination.groups.consumer_commands import ConsumerCommands
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.events import Beat, Join, Leave, MemberProtocol
from server.runtime.turns import Pace, Turns
from tests.harness.consumer_world import (
    REBALANCE_TIMEOUT_MS,
    FakeTopics,
    Part,
    Told,
    assignment_of,
    parts_of,
    told_of,
)

GROUP = "consumers"
STEPS = ("come", "beat", "beat", "beat", "go", "grow", "delete", "classic")
CLASSIC = "classic"
NOTHING = told_of(ConsumerState())


class ConsumerGroupOnDisk:
    """Tracks the group state that clients know, and the one that the current step leads to."""

    def __init__(
        self,
        commands: ConsumerCommands,
        groups: GroupCoordinator,
        topics: FakeTopics,
        random: Random,
    ) -> None:
        self._commands, self._groups, self._topics, self._random = commands, groups, topics, random
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, set[Part]] = {}
        self._count = 0
        self._has_classic_member = False
        self._is_being_deleted = False
        self.told: Told = NOTHING

    @property
    def will_tell(self) -> Told:
        """The state in memory, which is ahead of the disk; empty if the group is being deleted."""
        if self._is_being_deleted:
            return NOTHING
        # Not by `find`, which belongs to the loop: the disk asks while a thread writes to it.
        entry = self._groups.table._entries.get(GROUP)
        group = None if entry is None else entry.group
        return told_of(group.data) if isinstance(group, ConsumerGroup) else NOTHING

    async def step(self, members_max: int) -> None:
        """Perform one random event of the group."""
        members = sorted(self._epochs)
        what = self._random.choice(STEPS)
        if what == "grow":
            self._topics.put("t", self._topics.revision + 1)
        elif what == "come" and len(members) < members_max:
            self._count += 1
            await self._beat(f"consumer-{self._count}", JOINING)
        elif members and what == "classic":
            await self._classic_member_comes_or_goes()
        elif members and what == "go":
            await self._beat(self._random.choice(members), LEAVING)
        elif members:
            member = self._random.choice(members)
            await self._beat(member, self._epochs[member])
        elif what == "delete" and not self._has_classic_member:
            self._is_being_deleted = True
            deleted = await self._groups.delete(GROUP)
            assert deleted in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
            self._is_being_deleted = False
        self.told = self.will_tell

    async def _classic_member_comes_or_goes(self) -> None:
        """Let one member of the classic protocol join or leave."""
        if self._has_classic_member:
            leaving = [Leave(member_id=CLASSIC)]
            left = await self._groups.leave(GROUP, leaving, Pace(Turns()))
            assert not isinstance(left, ErrorCode)
            assert (await left).error_codes == (ErrorCode.NONE,)
        else:
            subscription = write(Subscription(topics=("t",)))
            join = Join(
                member_id="",
                new_member_id=CLASSIC,
                session_timeout_ms=REBALANCE_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                protocol_type=PROTOCOL_TYPE,
                protocols=(MemberProtocol("range", subscription),),
            )
            joined = await (await self._groups.join(GROUP, join))
            assert joined.error_code == ErrorCode.NONE, joined
        self._has_classic_member = not self._has_classic_member

    async def _beat(self, member: str, epoch: int) -> None:
        joins = epoch == JOINING
        beat = Beat(
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            topic_names=("t",) if joins else None,
            topic_regex="t.*" if joins and self._count % 2 else None,
            owned=assignment_of(self._owned.get(member, set())),
        )
        answer = await (await self._commands.heartbeat(GROUP, beat, Pace(Turns())))
        assert answer.error_code == ErrorCode.NONE, answer
        if epoch == LEAVING:
            del self._epochs[member], self._owned[member]
            return
        self._epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self._owned[member] = parts_of(answer.assignment)
        self._owned.setdefault(member, set())
