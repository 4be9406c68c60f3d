"""DescribeAcls (key 29), v1-v3.

Behaviour: returns the ACLs that the filter selects, by resource. A filter with a number that the broker
does not know gets INVALID_REQUEST (Kafka closes the connection for some). Without an authorizer the
answer is SECURITY_DISABLED, which consoles and Kafka's tools display as "access control is off".
Versions: v3 resources of type user.
Source: Apache Kafka, AclApis.scala `handleDescribeAcls`, DescribeAclsResponse.java.
"""

from __future__ import annotations

from protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.handlers.shared.acl_filters import acl_filter
from server.request_context import RequestContext
from server.security.acls import Acl, PatternType, ResourceType, fault_of_filter

_Pattern = tuple[ResourceType, str, PatternType]


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Describe the ACLs of each resource that has some."""
    acls, pace = context.broker.acls, context.pace
    if acls is None:
        text = "No Authorizer is configured on the broker"
        return refuse(request, context, ErrorCode.SECURITY_DISABLED, text)
    wanted = acl_filter(request)
    fault = fault_of_filter(wanted)
    if fault is not None:
        return refuse(request, context, ErrorCode.INVALID_REQUEST, fault)
    by_pattern: dict[_Pattern, list[AclDescription]] = {}
    async for acl in pace.paced(await acls.matching(wanted, pace)):
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        by_pattern.setdefault(pattern, []).append(_description(acl))
    resources = [
        _resource(pattern, described) async for pattern, described in pace.paced(by_pattern.items())
    ]
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE, error_message=None, resources=tuple(resources)
    )


def refuse(
    request: DescribeAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error_code, error_message=message, resources=())


def _resource(pattern: _Pattern, acls: list[AclDescription]) -> DescribeAclsResource:
    resource_type, name, pattern_type = pattern
    return DescribeAclsResource(
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        acls=tuple(acls),
    )


def _description(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
