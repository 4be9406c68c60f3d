"""Requests of a classic group member over the wire, in any version."""

from __future__ import annotations

from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker

AT_ONCE = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "1"}
"""Properties of a broker whose groups do not wait for more members."""

VERSION = 9
SYNC_VERSION = 5


def join_request(
    group_id: str = "group",
    *,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: bytes = b"topics",
    session_timeout_ms: int = 10_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )


async def join(
    served: ServedBroker, group_id: str = "group", *, version: int = VERSION
) -> JoinGroupResponse:
    """Join as a new member, with as many requests as the version needs."""
    request = join_request(group_id)
    response = await served.call(request, version, JoinGroupResponse)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request = join_request(group_id, member_id=response.member_id)
        response = await served.call(request, version, JoinGroupResponse)
    return response


def sync_request(
    joined: JoinGroupResponse, group_id: str = "group", *, protocol_name: str | None = "range"
) -> SyncGroupRequest:
    """Returns a leader's request that assigns each member its own id."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name=protocol_name,
        assignments=tuple(
            SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=member.member_id.encode()
            )
            for member in joined.members
        ),
    )


async def stabilize(
    served: ServedBroker, group_id: str = "group", *, version: int = VERSION
) -> JoinGroupResponse:
    """Make a stable group of one member. Returns its JoinGroup response."""
    joined = await join(served, group_id, version=version)
    assert joined.error_code == ErrorCode.NONE, joined
    request = sync_request(joined, group_id)
    synced = await served.call(request, min(version, SYNC_VERSION), SyncGroupResponse)
    assert synced.error_code == ErrorCode.NONE, synced
    return joined
