"""Command line options with which a job reaches a broker, and what Spark's Kafka source makes of them.

    --command-config FILE    client properties with Kafka's names; those of security are passed on
    --option NAME=VALUE      an option of Spark's Kafka source; it overrides the file

A file keeps passwords off the command line, which every user of the machine can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import CONFIG_VARIABLE
from cli.base.options import parse_pairs

SECURITY = ("security.", "sasl.", "ssl.")
PREFIX = "kafka."
READING = "Reading"

CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar=CONFIG_VARIABLE,
        metavar="FILE",
        help="Client properties with Kafka's names: security.protocol, sasl.jaas.config, ssl...",
        rich_help_panel=READING,
    ),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="For Spark's Kafka source (kafka.security.protocol=SSL, minPartitions=8). Repeatable.",
        rich_help_panel=READING,
    ),
]


def source_options(command_config: Path | None, option: Sequence[str] | None) -> dict[str, str]:
    """Returns the options of Spark's Kafka source. Raises CommandFailed if the file cannot be read."""
    options: dict[str, str] = {}
    if command_config is not None:
        from cli.base.access import properties_of_file

        found = properties_of_file(command_config).items()
        options = {f"{PREFIX}{name}": text for name, text in found if name.startswith(SECURITY)}
    return options | parse_pairs("--option", option)
