"""CreateAcls (key 30), v1-v3.

Behaviour: the broker has no authorizer, so every ACL gets SECURITY_DISABLED, as in Kafka. (For an
invalid ACL Kafka closes the connection; here it gets the same answer.)
Source: Apache Kafka, AclApis.scala `handleCreateAcls`.
"""

from __future__ import annotations

from protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.dispatch import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Answer that access control is disabled."""
    return refuse(request, context, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def refuse(
    request: CreateAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=error_code, error_message=message)
    return CreateAclsResponse(results=(refused,) * len(request.creations))
