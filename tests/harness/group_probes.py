"""The requests to a classic group whose answers are compared with Apache Kafka's.

A probe is one request of one version; an identity is the member id and instance id in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.sync_group import SyncGroupResponse
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from tests.harness.group_scenes import (
    FOLLOWER,
    INSTANCE,
    LEADER,
    NOBODY,
    OTHER_TOPIC,
    PENDING,
    STATIC,
    TOPIC,
    Stage,
    subscribed,
)

# Identities.


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends the request: the member with this role, and a static member's name."""

    name: str
    role: str
    """A member's role, or the member id itself."""
    instance_id: str | None = None

    def member_id(self, stage: Stage) -> str:
        return stage.ids.get(self.role, self.role)


IDENTITIES = (
    Identity("leader", LEADER),
    Identity("follower", FOLLOWER),
    Identity("static", STATIC, INSTANCE),
    Identity("static, unnamed", STATIC),
    Identity("pending", PENDING),
    Identity("stranger", NOBODY),
    Identity("no id", ""),
    Identity("static, no id", "", INSTANCE),
    Identity("new static, no id", "", "new"),
    Identity("static, other id", NOBODY, INSTANCE),
    Identity("new static, leader's id", LEADER, "new"),
    Identity("static, pending id", PENDING, INSTANCE),
)


# Probes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One request of one version."""

    name: str
    version: int
    request: Callable[[Stage, Identity], Awaitable[Message]]
    response_type: type[Message]
    told: Callable[[Any, Stage], str]
    """Returns the answer as a text."""
    identities: tuple[Identity, ...] = field(default=IDENTITIES)
    """The identities that the request can carry."""


UNNAMED = tuple(each for each in IDENTITIES if each.instance_id is None)
ANYBODY = IDENTITIES[:1]


def probes() -> Iterator[Probe]:
    """Yields all probes."""
    yield from _joins()
    yield from _syncs()
    for title, added in GENERATIONS.items():
        yield _heartbeat(title, added)
    yield _leave(5)
    yield _leave(2)
    yield from _commits()
    yield from _fetches()
    yield _delete_groups()
    yield _delete_offsets("of the members' topic", TOPIC)
    yield _delete_offsets("of another topic", OTHER_TOPIC)
    yield _describe(5)
    yield _describe(6)


GENERATIONS = {"older generation": -1, "its generation": 0, "newer generation": 1}


def _name(code: int) -> str:
    return ErrorCode(code).name


# JoinGroup.


def _joins() -> Iterator[Probe]:
    yield _join("same protocols", 3, UNNAMED)
    yield _join("same protocols", 9)
    yield _join("same protocols", 5, tuple(each for each in IDENTITIES if each.instance_id))
    yield _join("other metadata", 9, protocols=subscribed(OTHER_TOPIC))
    yield _join("no common protocol", 9, protocols=subscribed(TOPIC, "unknown"))
    yield _join("no protocol", 9, protocols=())
    yield _join("other protocol type", 9, protocol_type="connect")
    yield _join("no protocol type", 9, protocol_type="")


def _join(
    what: str, version: int, identities: tuple[Identity, ...] = IDENTITIES, **settings: Any
) -> Probe:
    async def request(stage: Stage, identity: Identity) -> Message:
        return stage.join_request(identity.member_id(stage), identity.instance_id, **settings)

    return Probe(
        name=f"JoinGroup v{version}, {what}",
        version=version,
        request=request,
        response_type=JoinGroupResponse,
        told=told_join,
        identities=identities,
    )


def told_join(answer: JoinGroupResponse, stage: Stage) -> str:
    """Returns the error, or the generation and the role of the member."""
    name = _name(answer.error_code)
    if answer.error_code != ErrorCode.NONE:
        return name
    generation = f"generation{answer.generation_id - stage.generation:+}"
    is_old_leader = answer.leader == stage.ids[LEADER] != answer.member_id
    role = f"leads {len(answer.members)}" if answer.leader == answer.member_id else "follows"
    leader = " old leader" if is_old_leader else ""
    skips = ", skips the assignment" if answer.skip_assignment else ""
    is_known = answer.member_id in stage.ids.values()
    return f"{name}, {generation}, {role}{leader}{skips}{'' if is_known else ', new id'}"


# SyncGroup, Heartbeat, LeaveGroup.


def _syncs() -> Iterator[Probe]:
    for title, added in GENERATIONS.items():
        yield _sync(title, added)
    yield _sync("other protocol type", protocol_type="connect")
    yield _sync("other protocol", protocol_name="unknown")
    yield _sync("no protocol", protocol_type=None, protocol_name=None)


def _sync(what: str, added: int = 0, **settings: Any) -> Probe:
    async def request(stage: Stage, identity: Identity) -> Message:
        return stage.sync_request(
            identity.member_id(stage),
            identity.instance_id,
            generation=stage.generation + added,
            **settings,
        )

    return Probe(
        name=f"SyncGroup v5, {what}",
        version=5,
        request=request,
        response_type=SyncGroupResponse,
        told=told_sync,
    )


def told_sync(answer: SyncGroupResponse, stage: Stage) -> str:
    """Returns the error, or whether the member got an assignment."""
    if answer.error_code != ErrorCode.NONE:
        return _name(answer.error_code)
    return "NONE, its assignment" if len(answer.assignment) else "NONE, no assignment"


def _heartbeat(title: str, added: int) -> Probe:
    async def request(stage: Stage, identity: Identity) -> Message:
        return HeartbeatRequest(
            group_id=stage.group_id,
            generation_id=stage.generation + added,
            member_id=identity.member_id(stage),
            group_instance_id=identity.instance_id,
        )

    return Probe(
        name=f"Heartbeat v4, {title}",
        version=4,
        request=request,
        response_type=HeartbeatResponse,
        told=lambda answer, _: _name(answer.error_code),
    )


def _leave(version: int) -> Probe:
    is_single = version < 3

    async def request(stage: Stage, identity: Identity) -> Message:
        member_id = identity.member_id(stage)
        if is_single:
            return LeaveGroupRequest(group_id=stage.group_id, member_id=member_id)
        member = MemberIdentity(member_id=member_id, group_instance_id=identity.instance_id)
        return LeaveGroupRequest(group_id=stage.group_id, members=(member,))

    def told(answer: LeaveGroupResponse, _: Stage) -> str:
        codes = [answer.error_code, *(member.error_code for member in answer.members)]
        return ", ".join(map(_name, codes))

    return Probe(
        name=f"LeaveGroup v{version}",
        version=version,
        request=request,
        response_type=LeaveGroupResponse,
        told=told,
        identities=UNNAMED if is_single else IDENTITIES,
    )


# Offsets.


def _commits() -> Iterator[Probe]:
    for title, added in GENERATIONS.items():
        yield _commit(title, _now(added))
    yield _commit("no generation", _never)
    yield _commit("its generation", _now(), version=8)
    for title, added in GENERATIONS.items():
        yield _commit_in_transaction(title, _now(added))
    yield _commit_in_transaction("no generation", _never)


def _now(added: int = 0) -> Callable[[Stage], int]:
    return lambda stage: stage.generation + added


def _never(_: Stage) -> int:
    return -1


def _commit(what: str, generation: Callable[[Stage], int], version: int = 9) -> Probe:
    async def request(stage: Stage, identity: Identity) -> Message:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=6, committed_metadata=None
        )
        return OffsetCommitRequest(
            group_id=stage.group_id,
            generation_id_or_member_epoch=generation(stage),
            member_id=identity.member_id(stage),
            group_instance_id=identity.instance_id,
            topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )

    return Probe(
        name=f"OffsetCommit v{version}, {what}",
        version=version,
        request=request,
        response_type=OffsetCommitResponse,
        told=_told_commit,
    )


async def told_first_commit(stage: Stage) -> str:
    """Commit an offset. Returns the answer: an error while the coordinator's topic is being created."""
    probe = _commit("no generation", _never)
    request = await probe.request(stage, Identity("no id", ""))
    return probe.told(await stage.call(request, probe.version, probe.response_type), stage)


def _commit_in_transaction(what: str, generation: Callable[[Stage], int]) -> Probe:
    async def request(stage: Stage, identity: Identity) -> Message:
        producer = await _producer_of(stage)
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=6, committed_metadata=None
        )
        return TxnOffsetCommitRequest(
            transactional_id=stage.group_id,
            group_id=stage.group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=generation(stage),
            member_id=identity.member_id(stage),
            group_instance_id=identity.instance_id,
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )

    return Probe(
        name=f"TxnOffsetCommit v5, {what}",
        version=5,
        request=request,
        response_type=TxnOffsetCommitResponse,
        told=_told_commit,
    )


async def _producer_of(stage: Stage) -> InitProducerIdResponse:
    """Returns the producer of a transactional id of the group's name."""
    request = InitProducerIdRequest(transactional_id=stage.group_id, transaction_timeout_ms=60_000)
    while True:
        answer = await stage.call(request, 4, InitProducerIdResponse)
        # The coordinator may still be loading its new topic.
        if answer.error_code not in LOADING:
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
            return answer
        await asyncio.sleep(0.1)


LOADING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def _told_commit(answer: OffsetCommitResponse | TxnOffsetCommitResponse, _: Stage) -> str:
    return _name(answer.topics[0].partitions[0].error_code)


def _fetches() -> Iterator[Probe]:
    yield _fetch("its generation", _now())
    yield _fetch("no generation", _never)


def _fetch(what: str, generation: Callable[[Stage], int]) -> Probe:
    async def request(stage: Stage, identity: Identity) -> Message:
        asked = OffsetFetchRequestGroup(
            group_id=stage.group_id,
            member_id=identity.member_id(stage),
            member_epoch=generation(stage),
            topics=(OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,)),),
        )
        return OffsetFetchRequest(groups=(asked,))

    return Probe(
        name=f"OffsetFetch v9, {what}",
        version=9,
        request=request,
        response_type=OffsetFetchResponse,
        told=_told_fetch,
        identities=UNNAMED,
    )


def _told_fetch(answer: OffsetFetchResponse, _: Stage) -> str:
    (group,) = answer.groups
    parts = [part for topic in group.topics for part in topic.partitions]
    offsets = [f"{_name(part.error_code)} {part.committed_offset}" for part in parts]
    return ", ".join([_name(group.error_code), *offsets])


def _delete_offsets(what: str, topic: str) -> Probe:
    async def request(stage: Stage, _: Identity) -> Message:
        partition = OffsetDeleteRequestPartition(partition_index=0)
        return OffsetDeleteRequest(
            group_id=stage.group_id,
            topics=(OffsetDeleteRequestTopic(name=topic, partitions=(partition,)),),
        )

    def told(answer: OffsetDeleteResponse, _: Stage) -> str:
        parts = [part.error_code for topic in answer.topics for part in topic.partitions]
        return ", ".join(map(_name, [answer.error_code, *parts]))

    return Probe(
        name=f"OffsetDelete v0, {what}",
        version=0,
        request=request,
        response_type=OffsetDeleteResponse,
        told=told,
        identities=ANYBODY,
    )


# Groups.


def _delete_groups() -> Probe:
    async def request(stage: Stage, _: Identity) -> Message:
        return DeleteGroupsRequest(groups_names=(stage.group_id,))

    return Probe(
        name="DeleteGroups v2",
        version=2,
        request=request,
        response_type=DeleteGroupsResponse,
        told=lambda answer, _: _name(answer.results[0].error_code),
        identities=ANYBODY,
    )


def _describe(version: int) -> Probe:
    async def request(stage: Stage, _: Identity) -> Message:
        return DescribeGroupsRequest(groups=(stage.group_id,))

    return Probe(
        name=f"DescribeGroups v{version}",
        version=version,
        request=request,
        response_type=DescribeGroupsResponse,
        told=_told_description,
        identities=ANYBODY,
    )


def _told_description(answer: DescribeGroupsResponse, _: Stage) -> str:
    """Returns the state, protocol type and protocol, and what is said of each member."""
    (group,) = answer.groups
    head = f"{group.group_state!r} {group.protocol_type!r} {group.protocol_data!r}"
    # Kafka's members have no order.
    members = sorted(
        SAID[len(each.member_metadata) > 0, len(each.member_assignment) > 0]
        for each in group.members
    )
    return ", ".join([_name(group.error_code), head, *members])


SAID = {
    (True, True): "assigned",
    (True, False): "metadata only",
    (False, True): "assignment only",
    (False, False): "bare",
}
