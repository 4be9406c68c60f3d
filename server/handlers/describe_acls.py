"""DescribeAcls (key 29), v1-v3.

Behaviour: there is no authorizer, so there is nothing to describe: SECURITY_DISABLED, which consoles
and Kafka's tools take for "access control is off".
Versions: v3 resources of type user.
Source: Apache Kafka, AclApis.scala.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from server.dispatch import RequestContext


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Say that access is not controlled."""
    text = "No Authorizer is configured on the broker"
    return refuse(request, context, ErrorCode.SECURITY_DISABLED, text)


def refuse(
    request: DescribeAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error_code, error_message=message, resources=())
