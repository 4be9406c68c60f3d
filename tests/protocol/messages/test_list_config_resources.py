"""ListConfigResources: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_requests() -> None:
    assert decode(ListConfigResourcesRequest, 0, memoryview(b"\0")) == ListConfigResourcesRequest()
    request = ListConfigResourcesRequest(resource_types=(2, 4))
    assert decode(ListConfigResourcesRequest, 1, memoryview(b"\3\2\4\0")) == request


def test_only_v1_says_the_type() -> None:
    resource = ConfigResource(resource_name="t", resource_type=2)
    response = ListConfigResourcesResponse(error_code=0, config_resources=(resource,))
    head = b"\0\0\0\0" + b"\0\0" + b"\2" + b"\2t"
    assert encode(response, 0) == [head + b"\0" + b"\0"]
    assert encode(response, 1) == [head + b"\2\0" + b"\0"]
