"""DescribeAcls (key 29).

Versions: v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user.
Source: DescribeAclsRequest.json, DescribeAclsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class DescribeAclsRequest(Message):
    """A filter; a null field matches anything."""

    api_key = 29
    versions = (1, 3)
    flexible_since = 2

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8, since=1, default=3)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@wire_class
class AclDescription:
    """An ACL: it allows or denies a principal an operation from a host."""

    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@wire_class
class DescribeAclsResource:
    """The ACLs of one resource."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, since=1, default=3)
    acls: tuple[AclDescription, ...] = wire(array(AclDescription))


@wire_class
class DescribeAclsResponse(Message):
    """The resources that have ACLs which the filter matches."""

    api_key = 29
    versions = (1, 3)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resources: tuple[DescribeAclsResource, ...] = wire(array(DescribeAclsResource))
