"""The options of Spark's Kafka source that a command line gives: for a secured broker, in a file.

    --command-config FILE    client properties with Kafka's names, as for Kafka's own tools
    --option NAME=VALUE      an option of the source; it overrides what the file says

A password belongs in the file: other users of the machine can read command lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import CONFIG_VARIABLE
from cli.base.options import parse_pair

OF_SECURITY = ("security.", "sasl.", "ssl.")
"""The beginnings of the properties that are taken from the file. It may serve several tools."""
CommandConfig = Annotated[
    str | None,
    typer.Option(
        envvar=CONFIG_VARIABLE,
        metavar="FILE",
        help="Client properties with Kafka's names: security.protocol, sasl.jaas.config, ssl...",
    ),
]


def source_options(command_config: str | None, options: Sequence[str] | None) -> dict[str, str]:
    """Returns the options of the Kafka source. Raises CommandFailed if one cannot be read."""
    given = dict(parse_pair("--option", text) for text in options or ())
    if command_config is None:
        return given
    from cli.base.client_properties import read_properties

    properties = read_properties(Path(command_config))
    secured = {
        f"kafka.{name}": value for name, value in properties.items() if name.startswith(OF_SECURITY)
    }
    return secured | given
