"""Stop a broker at every operation of its disk while a group rebalances, and read the group back.

Members of a group of either protocol come and go, the group becomes empty, is deleted and created again,
and cleaning passes compact its records. After every crash the group is in the state of the last answer,
or in that of the step that was running: a member that got an assignment still has it.

`coordinator_sweep.py` has the crashes.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from protocol.internal_topics.group_records import GroupMetadataKey, GroupMetadataValue
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.coordination.groups.classic.group import GroupSettings
from server.coordination.groups.consumer.state import state_of
from server.coordination.groups.consumer.topic_patterns import TopicPatterns
from server.coordination.groups.consumer_commands import ConsumerCommands
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.events import Join, Leave, MemberProtocol, Sync
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.holds import TombstoneHolds
from server.coordination.groups.loading import load_partition
from server.runtime.executors import Executor
from server.runtime.turns import Pace, Turns
from tests.crash.coordinator_sweep import CrashStates, Sweep
from tests.harness.consumer_on_disk import ConsumerGroupOnDisk
from tests.harness.consumer_world import CONSUMER_SETTINGS, FakeTopics, told_of
from tests.harness.consumer_world import Told as ConsumerTold
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_disk import compact, topic_of
from tests.harness.topics_world import FixedClock, open_world

GROUP, MEMBERS_MAX = "group", 3
ACTIONS = ("come", "come", "go", "go", "consume", "consume", "consume", "consume")

Told = tuple[int, dict[str, bytes]] | None
"""A group's generation and its assignment by member; None: there is no such group."""


Both = tuple[Told, ConsumerTold]
"""The answered state of a group of either protocol."""


class GroupOnDisk:
    """A coordinator over a disk, and the state that it has answered for its one group."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self.groups = groups
        self.told: Told = None
        self.will_tell: Told = None
        self.members: list[str] = []
        self._count = 0

    @property
    def is_nothing(self) -> bool:
        return not self.members and self.told is None

    async def comes(self) -> None:
        """A member more: everybody joins, and the leader gives each its work."""
        self._count += 1
        await self._rebalance(f"member-{self._count}")

    async def goes(self, member: str) -> None:
        """A member less; the others share its work."""
        self.members.remove(member)
        if not self.members and self.told is not None:
            self.will_tell = (self.told[0] + 1, {})
        left = await self.groups.leave(GROUP, [Leave(member_id=member)], Pace(Turns()))
        assert not isinstance(left, ErrorCode)
        assert (await left).error_codes == (ErrorCode.NONE,)
        self.told = self.will_tell
        if self.members:
            await self._rebalance(None)

    async def is_deleted(self) -> None:
        self.will_tell = None
        assert await self.groups.delete(GROUP) == ErrorCode.NONE
        self.told = None

    async def _rebalance(self, newcomer: str | None) -> None:
        joining = [await self.groups.join(GROUP, join_of("", newcomer))] if newcomer else []
        joining += [await self.groups.join(GROUP, join_of(each, "")) for each in self.members]
        self.members += [newcomer] if newcomer else []
        joined = await asyncio.gather(*joining)
        (leader,) = [each for each in joined if each.members]
        work = {each: f"{each}@{leader.generation}".encode() for each in self.members}
        self.will_tell = (leader.generation, work)
        others = [each for each in self.members if each != leader.member_id]
        waiting = [self.groups.sync(GROUP, sync_of(each, leader.generation, {})) for each in others]
        waiting.append(self.groups.sync(GROUP, sync_of(leader.member_id, leader.generation, work)))
        for member, synced in zip(
            [*others, leader.member_id], await asyncio.gather(*waiting), strict=True
        ):
            assert synced.error_code == ErrorCode.NONE, synced
            assert synced.assignment == work[member]
        self.told = self.will_tell


def join_of(member_id: str, new_member_id: str | None) -> Join:
    return Join(
        member_id=member_id,
        new_member_id=new_member_id or "",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(MemberProtocol("range", member_id.encode()),),
    )


def sync_of(member: str, generation: int, assignments: dict[str, bytes]) -> Sync:
    return Sync(member_id=member, generation=generation, assignments=assignments)


async def found_on(disk: MemoryFileSystem) -> Both:
    """What a start reads back."""
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    records = (await load_partition(topic, 0)).records if topic.partitions_count else ()
    await world.stores.close()
    classic: Told = None
    for record in records:
        if isinstance(record.key, GroupMetadataKey):
            assert isinstance(record.value, GroupMetadataValue)
            members = {each.member_id: copied(each.assignment) for each in record.value.members}
            classic = record.value.generation, members
    return classic, told_of(state_of(records))


async def history(seed: int) -> CrashStates[Both]:
    """Play one history; every state that a crash in it may leave."""
    random, disk = Random(seed), MemoryFileSystem()
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=MEMBERS_MAX)
    topics = FakeTopics()
    table = GroupTable(
        topic, settings, FixedClock(), consumer_settings=CONSUMER_SETTINGS, topics=topics
    )
    holds = TombstoneHolds(table, world.readable)
    assigning = Executor("assigning", threads=1)
    group = GroupOnDisk(GroupCoordinator(topic, table, holds, assigning=assigning))
    consumers = ConsumerGroupOnDisk(
        ConsumerCommands(group.groups, TopicPatterns(topics)), group.groups, topics, random
    )
    await topic.ensure()
    states = CrashStates(
        disk,
        seed,
        lambda: ((group.told, consumers.told), (group.will_tell, consumers.will_tell)),
    )
    for what in states.steps(random, ACTIONS):
        if what == "clean":
            compact(topic.log_of(0))
        elif what == "consume":
            await consumers.step(MEMBERS_MAX)
        elif (what == "come" and len(group.members) < MEMBERS_MAX) or group.is_nothing:
            await group.comes()
        elif group.members:
            await group.goes(random.choice(group.members))
        else:
            await group.is_deleted()
    await group.groups.stop()
    await world.close()
    return states


SWEEP = Sweep(history, found_on)


async def test_whoever_heard_an_assignment_still_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await SWEEP.run_all("groups", capsys)


async def test_the_sweep_catches_an_assignment_that_is_given_before_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await SWEEP.catches_answers_before_the_sync(monkeypatch)
