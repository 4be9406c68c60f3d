"""Carries out `kompakt quotas list`."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.output import print_json, print_table
from cli.base.topic_facts import refusal
from cli.quotas.entity import Entity, entity_text
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EXACT, DEFAULT = 0, 1


async def show_quotas(bootstrap: str, entity: Entity, *, as_json: bool) -> int:
    """Print one row for each quota, of all entities or of those that have these parts."""
    async with connected(bootstrap) as client:
        found = await quotas_of(client, entity)
    if as_json:
        rows = [{"entity": dict(each), "quotas": quotas} for each, quotas in found]
        print_json({"quotas": rows})
    elif found:
        print_table(("entity", "quota", "value"), _rows(found), texts=("entity", "quota"))
    else:
        typer.echo("there are no quotas")
    return 0


async def quotas_of(client: BrokerClient, entity: Entity) -> list[tuple[Entity, dict[str, float]]]:
    """Returns the entities that have these parts, with their quotas. Raises CommandFailed."""
    components = tuple(
        ComponentData(entity_type=type_, match_type=DEFAULT if name is None else EXACT, match=name)
        for type_, name in entity.items()
    )
    request = DescribeClientQuotasRequest(components=components, strict=False)
    answer = await client.call(request, DescribeClientQuotasResponse)
    if answer.error_code:
        raise CommandFailed(EXIT_FAILED, refusal(answer.error_code, answer.error_message))
    found = [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    ]
    return sorted(found, key=lambda each: entity_text(each[0]))


def number_text(value: float) -> str:
    """Returns a quota's value as people write it."""
    return str(int(value)) if value.is_integer() else str(value)


def _rows(found: Sequence[tuple[Entity, dict[str, float]]]) -> list[tuple[str, str, str]]:
    return [
        (entity_text(entity), key, number_text(value))
        for entity, quotas in found
        for key, value in sorted(quotas.items())
    ]
