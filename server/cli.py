"""The command line: `kompakt serve`, `kompakt --version`.

`serve` in its plain forms is recognised here without the libraries that make a command line
pleasant: together they cost more time than the broker's start. Everything else, `--help` and
mistakes included, goes to `server/commands.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ("--config", "--override")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """What `serve` was told."""

    config: Path | None
    overrides: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the process's exit code. `arguments` are the process's own by default."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    plain = parse_plain_serve(given)
    if plain is not None:
        from server.serve import serve

        return serve(plain.config, plain.overrides)
    from server.commands import run_command

    return run_command(given)


def parse_plain_serve(arguments: Sequence[str]) -> ServeArguments | None:
    """The arguments of `serve` if they are nothing but known options, else None."""
    if not arguments or arguments[0] != "serve":
        return None
    values: dict[str, list[str]] = {option: [] for option in OPTIONS}
    rest = iter(arguments[1:])
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option not in values:
            return None
        text = value if equals else next(rest, None)
        if text is None:
            return None
        values[option].append(text)
    config = values["--config"]
    return ServeArguments(
        config=Path(config[-1]) if config else None, overrides=tuple(values["--override"])
    )
