"""`kompakt doctor`: checks a configuration and its machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.base.command_end import end
from cli.base.options import AsJson


def doctor(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A server.properties file, as for serve.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="As for serve. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the configuration, log directories, disks, clock and listeners, and suggest remedies.

    Give it the same options as `serve`. It changes nothing, and a broker may be running. It writes
    briefly to each disk to measure how fast it syncs. Exit code 1: there is a fault.
    """
    from cli.doctor.doctor import Sources, examine

    sources = Sources(file=config, overrides=tuple(override or ()))
    end(lambda: examine(sources, as_json=as_json))
