"""`kompakt doctor`: what is wrong with a configuration and its machine, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from server.command_end import end
from server.command_options import AsJson


def doctor(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A server.properties file, as for serve.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="As for serve. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at the configuration, log directories, disks, clock and listeners, and say what to do.

    Give it what `serve` gets. A broker may be running; nothing is changed. Each disk is written to for
    a moment, to see how fast it syncs. Exit code 1: there is a fault.
    """
    from server.doctor import Sources, examine

    sources = Sources(file=config, overrides=tuple(override or ()))
    end(lambda: examine(sources, as_json=as_json))
