"""DescribeAcls: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v1() -> None:
    data = b"\1" + b"\xff\xff" + b"\1" + b"\0\1p" + b"\xff\xff" + b"\1\1"
    assert decode(DescribeAclsRequest, 1, memoryview(data)) == DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="p",
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def test_response_v3() -> None:
    acl = AclDescription(principal="p", host="*", operation=3, permission_type=3)
    resource = DescribeAclsResource(resource_type=2, resource_name="t", pattern_type=3, acls=(acl,))
    response = DescribeAclsResponse(error_code=0, error_message=None, resources=(resource,))
    (part,) = encode(response, 3)
    described = b"\2" + b"\2p" + b"\2*" + b"\3\3" + b"\0"
    assert part == b"\0\0\0\0" + b"\0\0" + b"\0" + b"\2" + b"\2\2t\3" + described + b"\0" + b"\0"
