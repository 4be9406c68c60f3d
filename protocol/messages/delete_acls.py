"""DeleteAcls (key 31).

Versions: v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user.
Source: DeleteAclsRequest.json, DeleteAclsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class DeleteAclsFilter:
    """A filter for ACLs to delete; a null field matches anything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8, since=1, default=3)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@wire_class
class DeleteAclsRequest(Message):
    """The filters; each is applied on its own."""

    api_key = 31
    versions = (1, 3)
    flexible_since = 2

    filters: tuple[DeleteAclsFilter, ...] = wire(array(DeleteAclsFilter))


@wire_class
class DeleteAclsMatchingAcl:
    """An ACL that a filter matched."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, since=1, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@wire_class
class DeleteAclsFilterResult:
    """What one filter deleted."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire(array(DeleteAclsMatchingAcl))


@wire_class
class DeleteAclsResponse(Message):
    """A result for each filter, in their order."""

    api_key = 31
    versions = (1, 3)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire(array(DeleteAclsFilterResult))
