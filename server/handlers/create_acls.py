"""CreateAcls (key 30), v1-v3.

Behaviour: the valid ACLs of a request are stored in one transaction; each invalid one gets
INVALID_REQUEST (for numbers that it does not know Kafka may close the connection instead). An ACL that
exists already is no error. More than 10,000 new ACLs are refused together (POLICY_VIOLATION).
Without an authorizer every ACL gets SECURITY_DISABLED.
Source: Apache Kafka, AclApis.scala `handleCreateAcls`, AclControlManager.java `createAcls`.
"""

from __future__ import annotations

from protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext
from server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from server.topics.topic import TopicRefused

NO_AUTHORIZER = "No Authorizer is configured."
CREATED = AclCreationResult(error_code=ErrorCode.NONE, error_message=None)


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Create the ACLs; they are in effect when the answer is sent."""
    acls = context.broker.acls
    if acls is None:
        return refuse(request, context, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    asked = [_acl(each) async for each in context.pace.paced(request.creations)]
    refused = await acls.create(asked, context.pace)
    results = [
        CREATED if fault is None else _result(fault) async for fault in context.pace.paced(refused)
    ]
    return CreateAclsResponse(results=tuple(results))


def refuse(
    request: CreateAclsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=error_code, error_message=message)
    return CreateAclsResponse(results=(refused,) * len(request.creations))


def _acl(asked: AclCreation) -> Acl:
    return Acl(
        ResourceType(asked.resource_type),
        asked.resource_name,
        PatternType(asked.resource_pattern_type),
        asked.principal,
        asked.host,
        Operation(asked.operation),
        Permission(asked.permission_type),
    )


def _result(fault: TopicRefused) -> AclCreationResult:
    return AclCreationResult(error_code=fault.error_code, error_message=fault.message)
