"""DescribeClientQuotas (key 48) (KIP-546).

Versions: v1 flexible.
Source: DescribeClientQuotasRequest.json, DescribeClientQuotasResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class ComponentData:
    """A condition on one part of an entity, such as its user."""

    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    """0: the name `match`; 1: the default; 2: any name."""
    match: str | None = wire(STRING, nullable_since=0)


@wire_class
class DescribeClientQuotasRequest(Message):
    """The entities whose quotas to describe."""

    api_key = 48
    versions = (0, 1)
    flexible_since = 1

    components: tuple[ComponentData, ...] = wire(array(ComponentData))
    strict: bool = wire(BOOL)
    """Whether entities with other parts are excluded."""


@wire_class
class EntityData:
    """One part of an entity; a null name is the default."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable_since=0)


@wire_class
class ValueData:
    """One quota."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@wire_class
class EntryData:
    """The quotas of one entity."""

    entity: tuple[EntityData, ...] = wire(array(EntityData))
    values: tuple[ValueData, ...] = wire(array(ValueData))


@wire_class
class DescribeClientQuotasResponse(Message):
    """The entities that have quotas; null together with an error."""

    api_key = 48
    versions = (0, 1)
    flexible_since = 1

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    entries: tuple[EntryData, ...] | None = wire(array(EntryData), nullable_since=0)
