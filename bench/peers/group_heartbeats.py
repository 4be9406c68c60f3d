"""Heartbeats of a large group: what its members send when nothing happens."""

from __future__ import annotations

from contextlib import ExitStack, closing

from bench.base.connection import Connection
from bench.base.figure import Figure
from bench.base.messages import answer_in, frame_of
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import loaded_rate, wait_until_served
from bench.peers.offset_commit import create_offsets_topic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.wire.error_codes import ErrorCode

JOIN_VERSION = 3
"""The last one in which a member gets its id and its generation with one request."""
SYNC_VERSION = HEARTBEAT_VERSION = 3
LIST_VERSION = 3
SESSION_MS = 300_000
METADATA = b"\0\0"


def heartbeats_figure(servers: Comparison, *, members: int) -> Figure:
    """Measure heartbeats of one group, each member on its connection."""

    def rate(peer: Peer) -> float:
        with topic_on(peer.port, "delete", tls=peer.tls) as name:
            frames = stable_group(peer, name, members)
            return loaded_rate(peer, frames, servers.effort.seconds)

    return servers.figure(f"heartbeats, one group of {members} members", "requests/s", rate)


def stable_group(peer: Peer, group: str, count: int) -> list[bytes]:
    """Let so many members join a group and get an assignment. Returns the heartbeat of each."""
    create_offsets_topic(peer, group)
    listed = frame_of(ListGroupsRequest(), LIST_VERSION)
    wait_until_served(peer, [listed], _error_of_list)
    with ExitStack() as stack:
        members = [
            stack.enter_context(closing(Connection(peer.port, peer.tls))) for _ in range(count)
        ]
        join = frame_of(_join_request(group), JOIN_VERSION)
        for each in members:
            each.send(join)
        joined = [answer_in(each.receive(), JoinGroupResponse, JOIN_VERSION) for each in members]
        for each, answer in zip(members, joined, strict=True):
            each.send(frame_of(_sync_request(group, answer), SYNC_VERSION))
        for each in members:
            synced = answer_in(each.receive(), SyncGroupResponse, SYNC_VERSION)
            if synced.error_code != ErrorCode.NONE:
                raise RuntimeError(f"a member got no assignment: error {synced.error_code}")
    return [
        frame_of(
            HeartbeatRequest(
                group_id=group, generation_id=each.generation_id, member_id=each.member_id
            ),
            HEARTBEAT_VERSION,
        )
        for each in joined
    ]


def _join_request(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=METADATA),),
    )


def _sync_request(group: str, joined: JoinGroupResponse) -> SyncGroupRequest:
    """Returns a member's request; the leader's has an assignment for each member."""
    if joined.error_code != ErrorCode.NONE:
        raise RuntimeError(f"a member could not join: error {joined.error_code}")
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=METADATA)
            for each in joined.members
        ),
    )


def _error_of_list(answer: memoryview) -> int:
    return answer_in(answer, ListGroupsResponse, LIST_VERSION).error_code
