"""FindCoordinator: one key up to v3, several from v4 on."""

from __future__ import annotations

from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0_is_a_key() -> None:
    assert decode(FindCoordinatorRequest, 0, memoryview(b"\0\1g")).key == "g"


def test_request_v4_has_several_keys() -> None:
    request = decode(FindCoordinatorRequest, 4, memoryview(b"\1\3\2g\2h\0"))
    assert request == FindCoordinatorRequest(key_type=1, coordinator_keys=("g", "h"))


def test_response_v1() -> None:
    response = FindCoordinatorResponse(error_code=15, error_message=None, node_id=-1, port=-1)
    (part,) = encode(response, 1)
    assert part == b"\0\0\0\0" + b"\0\x0f" + b"\xff\xff" + b"\xff" * 4 + b"\0\0" + b"\xff" * 4


def test_response_v4() -> None:
    coordinator = Coordinator(
        key="g", node_id=-1, host="", port=-1, error_code=15, error_message="m"
    )
    (part,) = encode(FindCoordinatorResponse(coordinators=(coordinator,)), 4)
    minus_one = b"\xff" * 4
    assert part == (
        b"\0\0\0\0" + b"\2" + b"\2g" + minus_one + b"\1" + minus_one + b"\0\x0f\2m\0" + b"\0"
    )
