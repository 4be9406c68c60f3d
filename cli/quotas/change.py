"""Carries out `kompakt quotas set` and `remove`."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from cli.base.broker_client import connected
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.output import print_json
from cli.base.topic_facts import refusal
from cli.quotas.entity import Entity, entity_text
from cli.quotas.show import number_text, quotas_of
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)


async def change_quotas(
    bootstrap: str,
    entity: Entity,
    changes: Mapping[str, float | None],
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Change quotas of one entity, all or none; None removes a quota."""
    async with connected(bootstrap) as client:
        answer = await client.call(_request(entity, changes, dry_run), AlterClientQuotasResponse)
        for result in answer.entries:
            if result.error_code:
                why = refusal(result.error_code, result.error_message)
                raise CommandFailed(EXIT_FAILED, f"{why}; nothing was changed")
        found = [quotas for each, quotas in await quotas_of(client, entity) if each == entity]
    now = found[0] if found else {}
    if as_json:
        print_json({"entity": dict(entity), "is_changed": not dry_run, "quotas": now})
    elif dry_run:
        typer.echo(f"{entity_text(entity)}: the broker would accept this; nothing was changed")
    else:
        typer.echo(f"{entity_text(entity)}: {_text_of(now)}")
    return 0


def _request(
    entity: Entity, changes: Mapping[str, float | None], dry_run: bool
) -> AlterClientQuotasRequest:
    parts = tuple(EntityData(entity_type=type_, entity_name=name) for type_, name in entity.items())
    ops = tuple(
        OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()
    )
    return AlterClientQuotasRequest(
        entries=(EntryData(entity=parts, ops=ops),), validate_only=dry_run
    )


def _text_of(quotas: Mapping[str, float]) -> str:
    if not quotas:
        return "no quotas"
    return ", ".join(f"{key}={number_text(value)}" for key, value in sorted(quotas.items()))
