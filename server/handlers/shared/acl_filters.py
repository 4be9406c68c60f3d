"""Reads the filters of DescribeAcls and DeleteAcls, which have the same fields."""

from __future__ import annotations

from protocol.messages.delete_acls import DeleteAclsFilter
from protocol.messages.describe_acls import DescribeAclsRequest
from server.security.acls import AclFilter, Operation, PatternType, Permission, ResourceType


def acl_filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Returns the filter of a request."""
    return AclFilter(
        resource_type=ResourceType(asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=PatternType(asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=Operation(asked.operation),
        permission=Permission(asked.permission_type),
    )
