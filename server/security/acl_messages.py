"""ACLs in the messages of DescribeAcls, as a client of it needs them."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResource
from server.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)


def describe_request(wanted: AclFilter) -> DescribeAclsRequest:
    """Returns the request for the ACLs that a filter selects."""
    return DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def acls_of(resource: DescribeAclsResource) -> Iterator[Acl]:
    """Yields the ACLs of one resource of an answer. Numbers of later releases become UNKNOWN."""
    for each in resource.acls:
        yield Acl(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            each.principal,
            each.host,
            Operation(each.operation),
            Permission(each.permission_type),
        )
