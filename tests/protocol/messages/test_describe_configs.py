"""DescribeConfigs: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def response() -> DescribeConfigsResponse:
    entry = DescribeConfigsResourceResult(
        name="k",
        value="v",
        read_only=False,
        config_source=1,
        is_sensitive=False,
        synonyms=(DescribeConfigsSynonym(name="s", value=None, source=5),),
        config_type=2,
        documentation="d",
    )
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=(entry,)
    )
    return DescribeConfigsResponse(results=(result,))


def test_request_v1_for_all_keys_of_a_topic() -> None:
    data = struct.pack(">ibh1si?", 1, 2, 1, b"t", -1, True)
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
    assert decode(DescribeConfigsRequest, 1, memoryview(data)) == DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True
    )


def test_request_v4_for_one_key() -> None:
    data = b"\2" + b"\2\2t\2\2k\0" + b"\0\1" + b"\0"
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=("k",)
    )
    assert decode(DescribeConfigsRequest, 4, memoryview(data)) == DescribeConfigsRequest(
        resources=(resource,), include_documentation=True
    )


def test_response_v1() -> None:
    (part,) = encode(response(), 1)
    assert part == (
        struct.pack(">iihhbh1s", 0, 1, 0, -1, 2, 1, b"t")
        + struct.pack(">ih1sh1s?b?", 1, 1, b"k", 1, b"v", False, 1, False)
        + struct.pack(">ih1shb", 1, 1, b"s", -1, 5)
    )


def test_response_v4() -> None:
    (part,) = encode(response(), 4)
    entry = b"\2k\2v\0\1\0" + b"\2\2s\0\5\0" + b"\2\2d\0"
    assert part == b"\0\0\0\0" + b"\2" + b"\0\0\0\2\2t" + b"\2" + entry + b"\0" + b"\0"
