"""AlterClientQuotas: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
    OpData,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    entity = b"\0\0\0\1" + b"\0\4user" + b"\xff\xff"
    ops = b"\0\0\0\1" + b"\0\1k" + struct.pack(">d", 2.5) + b"\0"
    data = b"\0\0\0\1" + entity + ops + b"\1"
    entry = EntryData(
        entity=(EntityData(entity_type="user", entity_name=None),),
        ops=(OpData(key="k", value=2.5, remove=False),),
    )
    assert decode(AlterClientQuotasRequest, 0, memoryview(data)) == AlterClientQuotasRequest(
        entries=(entry,), validate_only=True
    )


def test_response_v1() -> None:
    result = EntryResult(
        error_code=42,
        error_message="no",
        entity=(EntityData(entity_type="ip", entity_name="::1"),),
    )
    (part,) = encode(AlterClientQuotasResponse(throttle_time_ms=7, entries=(result,)), 1)
    entity = b"\2" + b"\3ip" + b"\4::1" + b"\0"
    assert part == b"\0\0\0\7" + b"\2" + b"\0\x2a" + b"\3no" + entity + b"\0" + b"\0"
