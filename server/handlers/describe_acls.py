"""DescribeAcls (key 29), v1-v3.

Behaviour: the broker has no authorizer, so the answer is SECURITY_DISABLED, which consoles and Kafka's
tools display as "access control is off".
Versions: v3 resources of type user.
Source: Apache Kafka, AclApis.scala.
"""

from __future__ import annotations

from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.wire.error_codes import ErrorCode
from server.dispatch import RequestContext


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Answer that access control is disabled."""
    text = "No Authorizer is configured on the broker"
    return refuse(request, context, ErrorCode.SECURITY_DISABLED, text)


def refuse(
    request: DescribeAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error_code, error_message=message, resources=())
