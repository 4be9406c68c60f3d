"""CreateAcls (key 30), v1-v3.

Behaviour: there is no authorizer, so nothing is created: SECURITY_DISABLED for each ACL, as in Kafka.
(Kafka closes the connection if an ACL itself is unsound; here it gets the same answer.)
Source: Apache Kafka, AclApis.scala `handleCreateAcls`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from server.dispatch import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Say that access is not controlled."""
    return refuse(request, context, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def refuse(
    request: CreateAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=error_code, error_message=message)
    return CreateAclsResponse(results=(refused,) * len(request.creations))
