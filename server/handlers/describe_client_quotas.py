"""DescribeClientQuotas (key 48), v0-v1.

Behaviour: there are no quotas, so a valid filter matches no entity. An invalid filter gets Kafka's
error.
Source: KIP-546; Apache Kafka, ClientQuotaCache.java `describeClientQuotas`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.dispatch import RequestContext

USER, CLIENT_ID, IP = "user", "client-id", "ip"


class MatchType(enum.IntEnum):
    """How an entity's name is compared. On the wire: values never change."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Check the filter, and return no entries."""
    fault = _fault_of_filter(request.components)
    if fault is not None:
        return refuse(request, context, *fault)
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=())


def refuse(
    request: DescribeClientQuotasRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error_code, error_message=message, entries=None)


def _fault_of_filter(components: Sequence[ComponentData]) -> tuple[ErrorCode, str] | None:
    seen: set[str] = set()
    for component in components:
        fault = _fault_of_component(component, seen)
        if fault is not None:
            return fault
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        text = (
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
        return ErrorCode.INVALID_REQUEST, text
    return None


def _fault_of_component(component: ComponentData, seen: set[str]) -> tuple[ErrorCode, str] | None:
    name, type_ = component.entity_type, component.match_type
    is_given = component.match is not None
    if type_ not in list(MatchType):
        return ErrorCode.INVALID_REQUEST, f"Unknown match type {type_}"
    if type_ == MatchType.EXACT and not is_given:
        text = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        return ErrorCode.INVALID_REQUEST, text
    if type_ != MatchType.EXACT and is_given:
        match_type = f"MATCH_TYPE_{MatchType(type_).name}"
        text = f"Request specified {match_type}, but also specified a match string."
        return ErrorCode.INVALID_REQUEST, text
    if not name:
        return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
    if name in seen:
        text = f"Entity type {name} cannot appear more than once in the filter."
        return ErrorCode.INVALID_REQUEST, text
    if name not in (USER, CLIENT_ID, IP):
        return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {name}"
    return None
