"""Completes groups on the command line. What asks the broker is imported only then."""

from __future__ import annotations

import typer

from cli.base.options import complete_names


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the groups that start with `incomplete`: none if no broker answers."""
    from cli.groups.facts import group_names

    return complete_names(context, incomplete, group_names)
