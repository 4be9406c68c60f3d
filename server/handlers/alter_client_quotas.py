"""AlterClientQuotas (key 49), v0-v1.

Behaviour: each entity's changes are applied or refused as a whole, independently of the others. A
change is durable and in effect when the answer is sent. The answer has each entity once. An entity
that the request has twice is refused and keeps its quotas; Kafka refuses it too, but applies the first
entry. A request with more than 10,000 changes is refused as a whole. The name of an ip entity must be
an address; Kafka also resolves host names.
Source: KIP-546; Apache Kafka, ClientQuotaControlManager.java.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.request_context import RequestContext
from server.security.quotas.quota_entity import QuotaEntity
from server.security.quotas.quota_store import Changes, fault_of

CHANGES_MAX = 10_000
"""Kafka's MAX_RECORDS_PER_USER_OP."""


class _Checked(NamedTuple):
    """The changes of one entity, and why they are refused, if they are."""

    parts: tuple[EntityData, ...]
    changes: Changes
    fault: str | None


async def handle(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Apply the valid changes together."""
    if await _count(request, context) > CHANGES_MAX:
        text = "Unable to perform excessively large batch operation."
        return refuse(request, context, ErrorCode.POLICY_VIOLATION, text)
    checked: dict[QuotaEntity, _Checked] = {}
    async for entry in context.pace.paced(request.entries):
        entity = _entity(entry)
        is_twice = entity in checked
        checked[entity] = _check(entry, entity, is_twice=is_twice)
    if not request.validate_only:
        valid = [(entity, each.changes) for entity, each in checked.items() if not each.fault]
        await context.broker.quota_store.alter(valid, context.pace)
    results = [_result(each) async for each in context.pace.paced(checked.values())]
    return AlterClientQuotasResponse(entries=tuple(results))


def refuse(
    request: AlterClientQuotasRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=lazy_array(
            lambda entry: EntryResult(
                error_code=error_code, error_message=message, entity=entry.entity
            ),
            request.entries,
        )
    )


async def _count(request: AlterClientQuotasRequest, context: RequestContext) -> int:
    """Returns the number of changes in the request; an entity counts as one at least."""
    count = 0
    async for entry in context.pace.paced(request.entries):
        count += max(len(entry.entity), len(entry.ops), 1)
    return count


def _entity(entry: EntryData) -> QuotaEntity:
    return QuotaEntity.of((part.entity_type, part.entity_name) for part in entry.entity)


def _check(entry: EntryData, entity: QuotaEntity, *, is_twice: bool) -> _Checked:
    changes = {each.key: None if each.remove else each.value for each in entry.ops}
    if is_twice:
        fault: str | None = f"Ignoring duplicate entity {entity}"
    elif len(changes) < len(entry.ops):
        fault = f"{_duplicate_text(entry)} not updating quota for this entity {entity}"
    else:
        fault = fault_of(entity, changes)
    return _Checked(entry.entity, changes, fault)


def _duplicate_text(entry: EntryData) -> str:
    times = Counter(each.key for each in entry.ops)
    twice = next(key for key, count in times.items() if count > 1)
    return f"Duplicate quota key {twice}"


def _result(checked: _Checked) -> EntryResult:
    code = ErrorCode.NONE if checked.fault is None else ErrorCode.INVALID_REQUEST
    return EntryResult(error_code=code, error_message=checked.fault, entity=checked.parts)
