"""Puts a classic group into a state over the wire: the members, their ids and their waiting requests.

Each group begins with a leader, a follower and a static member; `group_answers.py` sends it one more
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from protocol.internal_topics.consumer_protocol import Subscription, write
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from tests.harness.raw_client import RawClient

M = TypeVar("M", bound=Message)

TOPIC, OTHER_TOPIC = "group-scenes", "group-scenes-other"
"""The members are subscribed to the first."""

INSTANCE = "static"
TIMEOUT_MS = 1_000_000
"""Longer than a scene takes on the busiest machine, so that no member times out."""

PATIENCE_SECONDS = 300.0
NOBODY = "nobody-00000000"
"""A member id that no group has."""

LEADER, FOLLOWER, STATIC, PENDING = "leader", "follower", "static", "pending"
NEWCOMER = "newcomer"


class Asked(Protocol):
    """The broker under test."""

    address: tuple[str, int]

    async def settle(self, group_id: str, *waiting: asyncio.Task[Message]) -> None:
        """Return when all these requests are answered, or the others will have to wait for events."""


class Stage:
    """One group, and the connections of its members."""

    def __init__(self, asked: Asked, client: RawClient, group_id: str) -> None:
        self.asked = asked
        self.group_id = group_id
        self.ids: dict[str, str] = dict.fromkeys((LEADER, FOLLOWER, STATIC, PENDING), NOBODY)
        """The ids of the members."""
        self.generation = 0
        self.waiting: dict[str, asyncio.Task[Message]] = {}
        """The requests of the scene that wait, by member."""
        self._client = client
        self._tasks: list[asyncio.Task[Message]] = []

    @classmethod
    async def open(cls, asked: Asked, group_id: str, stack: AsyncExitStack) -> Self:
        """Connect; leaving `stack` cancels all requests."""
        client = await stack.enter_async_context(
            await RawClient.connect(*asked.address, timeout_s=None)
        )
        stage = cls(asked, client, group_id)
        stack.callback(stage._cancel)
        return stage

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def call(self, request: Message, version: int, response_type: type[M]) -> M:
        """Send a request that is answered at once."""
        return await self._client.call(request, version, response_type)

    def start(
        self, request: Message, version: int, response_type: type[Message]
    ) -> asyncio.Task[Message]:
        """Send a request that may wait, on a connection of its own."""

        async def ask() -> Message:
            async with await RawClient.connect(*self.asked.address, timeout_s=None) as client:
                return await client.call(request, version, response_type)

        task = asyncio.create_task(ask())
        self._tasks.append(task)
        return task

    async def described(self) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=(self.group_id,))
        (group,) = (await self.call(request, 5, DescribeGroupsResponse)).groups
        return group

    async def state(self) -> str:
        """Returns the group's state and number of members."""
        group = await self.described()
        return f"{group.group_state} {len(group.members)}"

    async def until(self, state: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.state() != state:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    # Requests.

    def join_request(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        protocol_type: str = "consumer",
        protocols: tuple[JoinGroupRequestProtocol, ...] | None = None,
    ) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=subscribed(TOPIC) if protocols is None else protocols,
        )

    def sync_request(
        self,
        member_id: str,
        instance_id: str | None,
        *,
        generation: int,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> SyncGroupRequest:
        """Returns a request that assigns each member its own id."""
        members = (self.ids[role] for role in (LEADER, FOLLOWER, STATIC))
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=each, assignment=each.encode())
                for each in members
            ),
        )

    # Steps.

    def joins(self, role: str) -> asyncio.Task[Message]:
        """Let a member join with its id, or as a new member."""
        member_id = self.ids.get(role, "")
        instance_id = INSTANCE if role == STATIC else None
        request = self.join_request("" if member_id == NOBODY else member_id, instance_id)
        # Before v4 a new member joins with its first request.
        return self.start(request, 5 if role == STATIC else 3, JoinGroupResponse)

    async def joined(self, role: str, task: asyncio.Task[Message]) -> None:
        """Wait until a member has joined, and note its id."""
        answer = await task
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.ids[role], self.generation = answer.member_id, answer.generation_id

    def syncs(self, role: str) -> asyncio.Task[Message]:
        request = self.sync_request(
            self.ids[role], INSTANCE if role == STATIC else None, generation=self.generation
        )
        return self.start(request, 5, SyncGroupResponse)

    async def reserve_id(self) -> None:
        """Get a member id without joining."""
        answer = await self.call(self.join_request(), 4, JoinGroupResponse)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(answer.error_code)
        self.ids[PENDING] = answer.member_id


def subscribed(topic: str, name: str = "range") -> tuple[JoinGroupRequestProtocol, ...]:
    """Returns the one protocol of a consumer that reads the topic."""
    metadata = write(Subscription(topics=(topic,)))
    return (JoinGroupRequestProtocol(name=name, metadata=metadata),)


@dataclass(frozen=True, slots=True)
class Scene:
    """The preparation of a group for a probe."""

    name: str
    set_up: Callable[[Stage], Awaitable[None]]


def scenes() -> Iterator[Scene]:
    """Yields all scenes."""
    yield Scene("no such group", _nothing)
    yield Scene("Empty, offsets only", _commit)
    yield Scene("Empty", _all_left)
    yield Scene("PreparingRebalance", _newcomer_waits)
    yield Scene("PreparingRebalance, rejoined", _two_rejoined)
    yield Scene("CompletingRebalance", _all_joined)
    yield Scene("CompletingRebalance, synced", _follower_waits)
    yield Scene("Stable", _stable)


async def _nothing(stage: Stage) -> None:
    """Do nothing: the group was never used."""


async def _commit(stage: Stage) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id=stage.group_id,
        topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
    )
    answer = await stage.call(request, 9, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def _all_joined(stage: Stage) -> None:
    """Begin the second generation, with three members."""
    await stage.joined(LEADER, stage.joins(LEADER))
    others = {role: stage.joins(role) for role in (FOLLOWER, STATIC)}
    await stage.until("PreparingRebalance 3")
    await stage.joined(LEADER, stage.joins(LEADER))
    for role, task in others.items():
        await stage.joined(role, task)


async def _follower_waits(stage: Stage) -> None:
    await _all_joined(stage)
    stage.waiting[FOLLOWER] = stage.syncs(FOLLOWER)
    await stage.asked.settle(stage.group_id, stage.waiting[FOLLOWER])


async def _stable(stage: Stage) -> None:
    await _all_joined(stage)
    for role in (LEADER, FOLLOWER, STATIC):
        answer = await stage.syncs(role)
        assert isinstance(answer, SyncGroupResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)


async def _newcomer_waits(stage: Stage) -> None:
    await _stable(stage)
    stage.waiting[NEWCOMER] = stage.joins(NEWCOMER)
    await stage.until("PreparingRebalance 4")


async def _two_rejoined(stage: Stage) -> None:
    await _newcomer_waits(stage)
    for role in (LEADER, FOLLOWER):
        stage.waiting[role] = stage.joins(role)
    await stage.asked.settle(stage.group_id, stage.waiting[LEADER], stage.waiting[FOLLOWER])


async def _all_left(stage: Stage) -> None:
    await _stable(stage)
    members = tuple(
        MemberIdentity(member_id=stage.ids[role]) for role in (LEADER, FOLLOWER, STATIC)
    )
    request = LeaveGroupRequest(group_id=stage.group_id, members=members)
    answer = await stage.call(request, 4, LeaveGroupResponse)
    assert {member.error_code for member in answer.members} == {ErrorCode.NONE}
    # A group that becomes empty begins a generation without members.
    stage.generation += 1
