"""DeleteAcls (key 31), v1-v3.

Behaviour: the broker has no authorizer, so every filter gets SECURITY_DISABLED, as in Kafka. (For an
invalid filter Kafka closes the connection; here it gets the same answer.)
Source: Apache Kafka, AclApis.scala `handleDeleteAcls`.
"""

from __future__ import annotations

from protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.dispatch import RequestContext
from server.handlers.create_acls import NO_AUTHORIZER


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Answer that access control is disabled."""
    return refuse(request, context, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def refuse(
    request: DeleteAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=error_code, error_message=message, matching_acls=())
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
