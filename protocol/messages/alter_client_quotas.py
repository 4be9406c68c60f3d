"""AlterClientQuotas (key 49) (KIP-546).

Versions: v1 flexible.
Source: AlterClientQuotasRequest.json, AlterClientQuotasResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class EntityData:
    """One part of an entity; a null name is the default."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable_since=0)


@wire_class
class OpData:
    """One quota to set or remove."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    """Ignored if the quota is removed."""
    remove: bool = wire(BOOL)


@wire_class
class EntryData:
    """The changes of one entity's quotas."""

    entity: tuple[EntityData, ...] = wire(array(EntityData))
    ops: tuple[OpData, ...] = wire(array(OpData))


@wire_class
class AlterClientQuotasRequest(Message):
    """The quotas to change."""

    api_key = 49
    versions = (0, 1)
    flexible_since = 1

    entries: tuple[EntryData, ...] = wire(array(EntryData))
    validate_only: bool = wire(BOOL)
    """True: check the changes, and change nothing."""


@wire_class
class EntryResult:
    """The result for one entity."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    entity: tuple[EntityData, ...] = wire(array(EntityData))


@wire_class
class AlterClientQuotasResponse(Message):
    """The results, one for each entity."""

    api_key = 49
    versions = (0, 1)
    flexible_since = 1

    throttle_time_ms: int = wire(INT32, default=0)
    entries: tuple[EntryResult, ...] = wire(array(EntryResult))
