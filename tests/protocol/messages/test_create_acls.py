"""CreateAcls: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v3() -> None:
    creation = AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="p",
        host="*",
        operation=4,
        permission_type=3,
    )
    data = b"\2" + b"\2\2t\3" + b"\2p\2*\4\3" + b"\0" + b"\0"
    decoded = decode(CreateAclsRequest, 3, memoryview(data))
    assert decoded == CreateAclsRequest(creations=(creation,))


def test_response_v1() -> None:
    result = AclCreationResult(error_code=54, error_message=None)
    (part,) = encode(CreateAclsResponse(results=(result,)), 1)
    assert part == b"\0\0\0\0" + b"\0\0\0\1" + b"\0\x36" + b"\xff\xff"
