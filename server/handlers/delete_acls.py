"""DeleteAcls (key 31), v1-v3.

Behaviour: the ACLs that the filters select are deleted in one transaction; each filter is answered with
the ACLs that it selects, also if another one selects them too. An invalid filter gets INVALID_REQUEST
(for numbers that it does not know Kafka may close the connection instead); a filter with which a request
would delete more than 10,000 ACLs gets POLICY_VIOLATION and deletes nothing.
Without an authorizer every filter gets SECURITY_DISABLED.
Source: Apache Kafka, AclApis.scala `handleDeleteAcls`, AclControlManager.java `deleteAcls`.
"""

from __future__ import annotations

from protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.handlers.create_acls import NO_AUTHORIZER
from server.handlers.shared.acl_filters import acl_filter
from server.request_context import RequestContext
from server.security.acls import Acl
from server.topics.topic import TopicRefused


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Delete the ACLs that the filters select; they have no effect when the answer is sent."""
    acls, pace = context.broker.acls, context.pace
    if acls is None:
        return refuse(request, context, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    filters = [acl_filter(each) async for each in pace.paced(request.filters)]
    deleted = await acls.delete(filters, pace)
    return DeleteAclsResponse(filter_results=lazy_array(_result, deleted))


def refuse(
    request: DeleteAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=error_code, error_message=message, matching_acls=())
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))


def _result(deleted: list[Acl] | TopicRefused) -> DeleteAclsFilterResult:
    if isinstance(deleted, TopicRefused):
        return DeleteAclsFilterResult(
            error_code=deleted.error_code, error_message=deleted.message, matching_acls=()
        )
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE, error_message=None, matching_acls=lazy_array(_matching, deleted)
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
