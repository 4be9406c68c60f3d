"""CreateAcls (key 30).

Versions: v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user.
Source: CreateAclsRequest.json, CreateAclsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class AclCreation:
    """An ACL: it allows or denies a principal an operation from a host."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8, since=1, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@wire_class
class CreateAclsRequest(Message):
    """The ACLs to create."""

    api_key = 30
    versions = (1, 3)
    flexible_since = 2

    creations: tuple[AclCreation, ...] = wire(array(AclCreation))


@wire_class
class AclCreationResult:
    """The result for one of them."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)


@wire_class
class CreateAclsResponse(Message):
    """A result for each ACL, in their order."""

    api_key = 30
    versions = (1, 3)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AclCreationResult, ...] = wire(array(AclCreationResult))
