"""Arguments and options that several commands of `kompakt compact` have."""

from __future__ import annotations

from typing import Annotated

import typer

OptionalTarget = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC[-N]]", help="A topic or one partition of it. Without it: all topics."
    ),
]
Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="KOMPAKT_URL", help="URL of the broker's HTTP listener (http.listener)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DEFAULT_URL = "http://127.0.0.1:9644"
