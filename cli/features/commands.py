"""`kompakt features ...`: shows and changes the levels of the cluster's features."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import run
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun

app = typer.Typer(
    name="features",
    help="Show and change the levels of the cluster's features. Clients and other clusters use what the"
    " level allows.",
    no_args_is_help=True,
)

Levels = Annotated[
    list[str], typer.Argument(metavar="NAME=LEVEL...", help="Features with their new levels.")
]


@app.command()
@with_access
def describe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show each feature: its level, and the levels that the broker supports."""
    from cli.features.change import show_features

    run(lambda: show_features(bootstrap, as_json=as_json))


@app.command()
@with_access
def upgrade(
    levels: Levels,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Raise levels, all or none."""
    from cli.features.change import Change, set_levels

    run(lambda: set_levels(bootstrap, levels, Change.UPGRADE, dry_run=dry_run, as_json=as_json))


@app.command()
@with_access
def downgrade(
    levels: Levels,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Also if what the level allowed may be lost.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Lower levels, all or none."""
    from cli.features.change import Change, set_levels

    change = Change.UNSAFE_DOWNGRADE if unsafe else Change.SAFE_DOWNGRADE
    run(lambda: set_levels(bootstrap, levels, change, dry_run=dry_run, as_json=as_json))
