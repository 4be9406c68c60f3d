"""Carries out `kompakt features`: ApiVersions shows the levels, UpdateFeatures changes them."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import typer

from cli.base.broker_client import connected
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.options import parse_pair
from cli.base.output import print_json, print_table
from cli.base.topic_facts import refusal
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from server.runtime.release import release

LEVEL_MAX = 32_767
TITLES = ("FEATURE", "LEVEL", "SUPPORTED")


class Change(enum.IntEnum):
    """How a level may change. On the wire: values never change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


async def show_features(bootstrap: str, *, as_json: bool) -> int:
    """Print the levels. Returns the exit code."""
    async with connected(bootstrap) as client:
        asked = ApiVersionsRequest(
            client_software_name="kompakt", client_software_version=release()
        )
        found = await client.call(asked, ApiVersionsResponse)
    levels = {each.name: each.max_version_level for each in found.finalized_features}
    features = [
        {
            "name": each.name,
            "level": levels.get(each.name, 0),
            "supported": [each.min_version, each.max_version],
        }
        for each in sorted(found.supported_features, key=lambda each: each.name)
    ]
    if as_json:
        print_json({"features": features, "epoch": found.finalized_features_epoch})
        return 0
    rows = [
        (each.name, str(levels.get(each.name, 0)), f"{each.min_version} to {each.max_version}")
        for each in sorted(found.supported_features, key=lambda each: each.name)
    ]
    print_table(TITLES, rows, texts=("FEATURE", "SUPPORTED"))
    return 0


async def set_levels(
    bootstrap: str, texts: Sequence[str], change: Change, *, dry_run: bool, as_json: bool
) -> int:
    """Change levels, all or none. Returns the exit code.

    Raises:
        CommandFailed: a level is no NAME=LEVEL, or the broker refuses one of them.
    """
    levels = _parse_levels(texts)
    updates = tuple(
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            upgrade_type=change,
        )
        for name, level in levels.items()
    )
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=dry_run)
    async with connected(bootstrap) as client:
        answer = await client.call(request, UpdateFeaturesResponse)
    if answer.error_code:
        raise CommandFailed(EXIT_FAILED, refusal(answer.error_code, answer.error_message))
    if as_json:
        print_json({"levels": levels, "is_changed": not dry_run})
    elif dry_run:
        typer.echo("the broker would accept this; nothing was changed")
    else:
        for name, level in levels.items():
            typer.echo(f"{name} is {level}")
    return 0


def _parse_levels(texts: Sequence[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name, level in map(_parse_level, texts):
        if name in levels:
            raise CommandFailed(EXIT_USAGE, f"{name} is given twice")
        levels[name] = level
    return levels


def _parse_level(text: str) -> tuple[str, int]:
    name, level = parse_pair("", text)
    if not level.isascii() or not level.isdecimal() or int(level) > LEVEL_MAX:
        raise CommandFailed(EXIT_USAGE, f"{text}: a level is a number from 0 to {LEVEL_MAX}")
    return name, int(level)
