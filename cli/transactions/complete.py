"""Completes transactional ids on the command line. What asks the broker is imported only then."""

from __future__ import annotations

import typer

from cli.base.options import complete_names


def complete_transactional_id(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the transactional ids that start with `incomplete`: none if no broker answers."""
    from cli.transactions.facts import transactional_ids

    return complete_names(context, incomplete, transactional_ids)
