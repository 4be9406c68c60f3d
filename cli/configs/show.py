"""Carries out `kompakt configs describe`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from cli.base.broker_client import connected
from cli.base.output import print_json, print_table
from cli.configs.target import Target, named, settings_of
from protocol.messages.describe_configs import DescribeConfigsResourceResult
from server.config.value_source import ConfigSource, type_name

TEXT_WIDTH = 78
HIDDEN = "(hidden)"

Json = dict[str, Any]


async def show_configs(
    bootstrap: str,
    target: Target,
    names: Sequence[str],
    *,
    with_defaults: bool,
    with_docs: bool,
    as_json: bool,
) -> int:
    """Print the settings in `names`, or those that differ from their defaults. Returns the exit code."""
    async with connected(bootstrap) as client:
        target = await named(client, target)
        found = await settings_of(client, target, list(names) or None)
    settings = [setting_json(config) for config in found]
    shown = [row for row in settings if names or with_defaults or not _is_default(row)]
    if as_json:
        print_json({"of": target.words, "configs": shown})
        return 0
    if names or with_docs:
        _print_details(shown)
    elif shown:
        print_table(
            ("name", "value", "from"), list(map(_row, shown)), texts={"name", "value", "from"}
        )
    if not settings:
        typer.echo(f"no settings for {target.words}")
    if len(shown) < len(settings) and not names:
        typer.echo(f"{len(settings) - len(shown)} more have their defaults (--all)")
    return 0


def setting_json(config: DescribeConfigsResourceResult) -> Json:
    """Returns a setting for programs."""
    return {
        "name": config.name,
        "value": config.value,
        "source": ConfigSource.of(config.config_source).name,
        "type": type_name(config.config_type),
        "is_read_only": config.read_only,
        "is_sensitive": config.is_sensitive,
        "synonyms": [
            {
                "name": synonym.name,
                "value": synonym.value,
                "source": ConfigSource.of(synonym.source).name,
            }
            for synonym in config.synonyms
        ],
        "documentation": config.documentation or "",
    }


def value_text(row: Json) -> str:
    """Returns a setting's value for people."""
    if row["is_sensitive"]:
        return HIDDEN
    return "(none)" if row["value"] is None else str(row["value"])


def source_text(row: Json) -> str:
    """Returns where a setting's value comes from, for people."""
    return ConfigSource[row["source"]].words


def _is_default(row: Json) -> bool:
    return bool(row["source"] == ConfigSource.DEFAULT_CONFIG.name)


def _row(row: Json) -> tuple[str, ...]:
    return row["name"], value_text(row), source_text(row)


def _print_details(settings: Iterable[Json]) -> None:
    """Print each setting with its type, source, synonyms and documentation."""
    for row in settings:
        typer.echo(f"{row['name']}={value_text(row)}")
        typer.echo(f"  {row['type']}, from: {source_text(row)}{_read_only(row)}")
        for other in row["synonyms"][1:]:
            typer.echo(f"  otherwise: {other['name']}={other['value']} ({source_text(other)})")
        typer.echo(
            textwrap.fill(
                row["documentation"], TEXT_WIDTH, initial_indent="  ", subsequent_indent="  "
            )
        )


def _read_only(row: Json) -> str:
    return "; changing it needs a restart" if row["is_read_only"] else ""
