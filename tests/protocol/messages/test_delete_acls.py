"""DeleteAcls: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v1() -> None:
    wanted = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="p",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    data = b"\0\0\0\1" + b"\1" + b"\xff\xff" + b"\1" + b"\0\1p" + b"\xff\xff" + b"\1\1"
    decoded = decode(DeleteAclsRequest, 1, memoryview(data))
    assert decoded == DeleteAclsRequest(filters=(wanted,))


def test_response_v2() -> None:
    acl = DeleteAclsMatchingAcl(
        error_code=0,
        error_message=None,
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="p",
        host="*",
        operation=4,
        permission_type=3,
    )
    result = DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=(acl,))
    (part,) = encode(DeleteAclsResponse(filter_results=(result,)), 2)
    matching = b"\0\0\0" + b"\2\2t\3" + b"\2p\2*\4\3" + b"\0"
    assert part == b"\0\0\0\0" + b"\2" + b"\0\0\0" + b"\2" + matching + b"\0" + b"\0"
