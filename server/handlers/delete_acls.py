"""DeleteAcls (key 31), v1-v3.

Behaviour: there is no authorizer, so there is nothing to delete: SECURITY_DISABLED for each filter, as
in Kafka. (Kafka closes the connection if a filter itself is unsound; here it gets the same answer.)
Source: Apache Kafka, AclApis.scala `handleDeleteAcls`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from server.dispatch import RequestContext
from server.handlers.create_acls import NO_AUTHORIZER


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Say that access is not controlled."""
    return refuse(request, context, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def refuse(
    request: DeleteAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=error_code, error_message=message, matching_acls=())
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
