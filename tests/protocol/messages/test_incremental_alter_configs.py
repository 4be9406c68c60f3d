"""IncrementalAlterConfigs: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.alter_configs import AlterConfigsResourceResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

REQUEST = IncrementalAlterConfigsRequest(
    resources=(
        AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=(
                AlterableConfig(name="a", config_operation=2, value="1"),
                AlterableConfig(name="b", config_operation=1, value=None),
            ),
        ),
    ),
    validate_only=False,
)
RESPONSE = IncrementalAlterConfigsResponse(
    responses=(
        AlterConfigsResourceResponse(
            error_code=0, error_message=None, resource_type=2, resource_name="t"
        ),
    )
)


def test_request_v0() -> None:
    configs = struct.pack(">ih1sbh1sh1sbh", 2, 1, b"a", 2, 1, b"1", 1, b"b", 1, -1)
    data = struct.pack(">ibh1s", 1, 2, 1, b"t") + configs + b"\0"
    assert decode(IncrementalAlterConfigsRequest, 0, memoryview(data)) == REQUEST


def test_request_v1_is_flexible() -> None:
    data = b"\2\2\2t\3" + b"\2a\2\0021\0" + b"\2b\1\0\0" + b"\0\0\0"
    assert decode(IncrementalAlterConfigsRequest, 1, memoryview(data)) == REQUEST


def test_response_v0() -> None:
    (part,) = encode(RESPONSE, 0)
    assert part == struct.pack(">iihhbh1s", 0, 1, 0, -1, 2, 1, b"t")


def test_response_v1_is_flexible() -> None:
    (part,) = encode(RESPONSE, 1)
    assert part == b"\0\0\0\0\2" + b"\0\0\0\2\2t\0" + b"\0"
