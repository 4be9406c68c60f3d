"""Carries out `kompakt configs set` and `unset` and prints the result; `preview.py` is `--dry-run`.

After a change of some settings (broker.fenced.by) the broker starts again as soon as it has answered;
the result is read over another connection then.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from cleaner.rules.harmful_settings import Harm
from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed, complain
from cli.base.output import print_json
from cli.base.topic_facts import BROKER_RESOURCE, TOPIC_RESOURCE, refusal
from cli.base.topic_warnings import harms_of
from cli.configs.show import Json, setting_json, source_text, value_text
from cli.configs.target import Target, named, settings_of
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

RESTART_SECONDS_MAX, RESTART_PAUSE_SECONDS = 10.0, 0.2


class Operation(enum.IntEnum):
    """An operation on a setting. The values go over the wire and must not change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a setting."""

    name: str
    operation: Operation
    value: str | None = None


async def change_configs(
    bootstrap: str, target: Target, changes: Sequence[Change], *, as_json: bool
) -> int:
    """Apply all changes or none, and return the exit code."""
    names = list(dict.fromkeys(change.name for change in changes))
    async with connected(bootstrap) as client:
        target = await named(client, target)
        before = await settings_before(client, target, changes)
        await alter(client, target, changes, dry_run=False)
        after = await _read_back(client, bootstrap, target, names)
        harms = await harms_after(client, target, ())
    if after is None:
        raise CommandFailed(
            EXIT_UNREACHABLE,
            f"{target.words}: the broker has made the change and started again; it no longer answers"
            f" at {bootstrap}",
        )
    rows = [{"name": name, "before": before.get(name), "now": after.get(name)} for name in names]
    if as_json:
        warnings = [str(harm) for harm in harms]
        print_json({"of": target.words, "is_changed": True, "configs": rows, "warnings": warnings})
        return 0
    for row in rows:
        typer.echo(f"{target.words}: {_change_text(row)}")
    for harm in harms:
        complain(f"warning: {harm}")
    return 0


async def settings_before(
    client: BrokerClient, target: Target, changes: Sequence[Change]
) -> dict[str, Json]:
    """Returns the settings that changes are about, by name. Raises CommandFailed for a wrong name."""
    if target.resource_type == BROKER_RESOURCE:
        await _check_names(client, changes)
    return await _settings(client, target, list(dict.fromkeys(each.name for each in changes)))


async def harms_after(
    client: BrokerClient, target: Target, planned: Sequence[Change]
) -> tuple[Harm, ...]:
    """Returns what the settings of a topic do that no one can want, with the changes to come."""
    if target.resource_type != TOPIC_RESOURCE:
        return ()
    values = {config.name: config.value for config in await settings_of(client, target, None)}
    return harms_of(
        values | {each.name: value_after(values.get(each.name), each) for each in planned}
    )


def value_after(value: str | None, change: Change) -> str | None:
    """Returns the text of a setting after a valid change; None: the default. Pure.

    The broker's own default may differ; `kompakt configs set --dry-run` shows the broker's warnings if
    its HTTP listener answers.
    """
    if change.operation in (Operation.SET, Operation.DELETE):
        return change.value
    elements = list(filter(None, (value or "").split(",")))
    given = (change.value or "").split(",")
    kept = [each for each in elements if each not in given]
    return ",".join(kept if change.operation is Operation.SUBTRACT else [*kept, *given])


async def _check_names(client: BrokerClient, changes: Sequence[Change]) -> None:
    """Raise CommandFailed if a name is not a broker setting: the broker would accept and ignore it."""
    names = [change.name for change in changes if change.operation != Operation.DELETE]
    if names:
        answering = await named(client, Target(resource_type=BROKER_RESOURCE, name=None))
        await settings_of(client, answering, names)


async def alter(
    client: BrokerClient, target: Target, changes: Sequence[Change], *, dry_run: bool
) -> None:
    """Let the broker make all changes or none, or only check them. Raises CommandFailed."""
    resource = AlterConfigsResource(
        resource_type=target.resource_type,
        resource_name=str(target.name),
        configs=tuple(
            AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
            for change in changes
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=dry_run)
    (result,) = (await client.call(request, IncrementalAlterConfigsResponse)).responses
    if result.error_code:
        why = refusal(result.error_code, result.error_message)
        raise CommandFailed(EXIT_FAILED, f"{target.words}: {why}; nothing was changed")


async def _settings(client: BrokerClient, target: Target, names: Sequence[str]) -> dict[str, Json]:
    """Returns the settings by name; for all brokers, only those that are set."""
    found = await settings_of(client, target, names)
    return {config.name: setting_json(config) for config in found}


async def _read_back(
    client: BrokerClient, bootstrap: str, target: Target, names: Sequence[str]
) -> dict[str, Json] | None:
    """Returns the settings after a change; None if the broker no longer answers at this address."""
    deadline = time.monotonic() + RESTART_SECONDS_MAX
    try:
        return await _settings(client, target, names)
    except CommandFailed as error:
        _check_is_away(error)
    while time.monotonic() < deadline:
        await asyncio.sleep(RESTART_PAUSE_SECONDS)
        try:
            async with connected(bootstrap) as again:
                return await _settings(again, target, names)
        except CommandFailed as error:
            _check_is_away(error)
    return None


def _check_is_away(error: CommandFailed) -> None:
    """Raise the error unless it says that no broker answers."""
    if error.exit_code != EXIT_UNREACHABLE:
        raise error


def _change_text(row: Json) -> str:
    """Returns the new and the old value of a setting."""
    now, was = (_value_and_source(row[key]) for key in ("now", "before"))
    return f"{row['name']} is {now}, " + ("as before" if now == was else f"was {was}")


def _value_and_source(setting: Json | None) -> str:
    return "not set" if setting is None else f"{value_text(setting)} (from: {source_text(setting)})"
