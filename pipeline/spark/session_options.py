"""The user's options for the Spark session, named as in `spark-submit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

import typer

from cli.base.options import parse_pairs

PANEL = "Spark"
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The Spark master: local[N], spark://HOST:PORT, yarn, k8s://...  [default: local[*]]",
        rich_help_panel=PANEL,
    ),
]
Packages = Annotated[
    str | None,
    typer.Option(
        metavar="GROUP:NAME:VERSION,...",
        help="Maven packages that Spark resolves itself, instead of our jars.",
        rich_help_panel=PANEL,
    ),
]
Jars = Annotated[
    str | None,
    typer.Option(metavar="PATH,...", help="Jars to use instead of ours.", rich_help_panel=PANEL),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A Spark property; overrides ours. Repeatable.",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The session that a user requests; `packages` or `jars` replace our jars."""

    master: str | None = None
    packages: str | None = None
    jars: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(
        cls, master: str | None, packages: str | None, jars: str | None, conf: Sequence[str] | None
    ) -> Self:
        """Parse them from the command line. Raises CommandFailed."""
        pairs = parse_pairs("--conf", conf)
        return cls(master=master, packages=packages, jars=jars, conf=pairs)

    @property
    def brings_its_own_jars(self) -> bool:
        """Whether the user names the jars on the class path."""
        named = ("spark.jars", "spark.jars.packages")
        return bool(self.packages or self.jars or any(name in self.conf for name in named))
