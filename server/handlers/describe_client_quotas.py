"""DescribeClientQuotas (key 48), v0-v1.

Behaviour: returns the entities that match every component of the filter. With `strict`, entities with
parts of other types are left out.
Source: KIP-546; Apache Kafka, ClientQuotasImage.java `describe`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext
from server.security.quotas.quota_entity import ENTITY_TYPES, IP, QuotaEntity


class MatchType(enum.IntEnum):
    """How an entity's name is compared. On the wire: values never change."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Check the filter, and return the entities that match it."""
    fault = _fault_of_filter(request.components)
    if fault is not None:
        return refuse(request, context, *fault)
    asked = {each.entity_type: each for each in request.components}
    entries = [
        _entry(entity, quotas)
        async for entity, quotas in context.pace.paced(context.broker.quota_store.all())
        if _matches(entity, asked, is_strict=request.strict)
    ]
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE, error_message=None, entries=tuple(entries)
    )


def refuse(
    request: DescribeClientQuotasRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error_code, error_message=message, entries=None)


def _matches(entity: QuotaEntity, asked: Mapping[str, ComponentData], *, is_strict: bool) -> bool:
    if is_strict and len(entity.parts) != len(asked):
        return False
    names = dict(entity.parts)
    return all(
        type_ in names and (each.match_type == MatchType.SPECIFIED or names[type_] == each.match)
        for type_, each in asked.items()
    )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=tuple(
            EntityData(entity_type=type_, entity_name=name) for type_, name in entity.parts
        ),
        values=tuple(ValueData(key=key, value=value) for key, value in quotas.items()),
    )


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
    if name not in ENTITY_TYPES:
        return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {name}"
    return None
