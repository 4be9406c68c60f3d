"""AlterConfigs: bytes as clients send and expect them."""

from __future__ import annotations

import struct

import pytest

from protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

REQUEST = AlterConfigsRequest(
    resources=(
        AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=(AlterableConfig(name="a", value="1"), AlterableConfig(name="b", value=None)),
        ),
    ),
    validate_only=True,
)
RESPONSE = AlterConfigsResponse(
    responses=(
        AlterConfigsResourceResponse(
            error_code=40, error_message="no", resource_type=2, resource_name="t"
        ),
    )
)


@pytest.mark.parametrize("version", [0, 1])
def test_request_before_v2(version: int) -> None:
    configs = struct.pack(">ih1sh1sh1sh", 2, 1, b"a", 1, b"1", 1, b"b", -1)
    data = struct.pack(">ibh1s", 1, 2, 1, b"t") + configs + b"\1"
    assert decode(AlterConfigsRequest, version, memoryview(data)) == REQUEST


def test_request_v2_is_flexible() -> None:
    data = b"\2\2\2t\3" + b"\2a\0021\0" + b"\2b\0\0" + b"\0\1\0"
    assert decode(AlterConfigsRequest, 2, memoryview(data)) == REQUEST


@pytest.mark.parametrize("version", [0, 1])
def test_response_before_v2(version: int) -> None:
    (part,) = encode(RESPONSE, version)
    assert part == struct.pack(">iihh2sbh1s", 0, 1, 40, 2, b"no", 2, 1, b"t")


def test_response_v2_is_flexible() -> None:
    (part,) = encode(RESPONSE, 2)
    assert part == b"\0\0\0\0\2" + b"\0\x28\3no\2\2t\0" + b"\0"
