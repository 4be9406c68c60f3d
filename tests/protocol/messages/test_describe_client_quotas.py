"""DescribeClientQuotas: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    data = b"\0\0\0\1" + b"\0\4user" + b"\2" + b"\xff\xff" + b"\1"
    component = ComponentData(entity_type="user", match_type=2, match=None)
    assert decode(DescribeClientQuotasRequest, 0, memoryview(data)) == DescribeClientQuotasRequest(
        components=(component,), strict=True
    )


def test_a_quota_is_a_double() -> None:
    entry = EntryData(
        entity=(EntityData(entity_type="user", entity_name=None),),
        values=(ValueData(key="k", value=1.5),),
    )
    response = DescribeClientQuotasResponse(error_code=0, error_message=None, entries=(entry,))
    (part,) = encode(response, 1)
    entity = b"\2" + b"\5user" + b"\0" + b"\0"
    value = b"\2" + b"\2k" + struct.pack(">d", 1.5) + b"\0"
    assert part == b"\0\0\0\0" + b"\0\0" + b"\0" + b"\2" + entity + value + b"\0" + b"\0"
