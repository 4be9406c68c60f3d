"""Entry point of the command line: parses plain `kompakt serve` itself, passes on everything else.

Importing the command-line libraries takes longer than starting the broker, so `serve` with ordinary
options runs without them. Everything else, including `--help` and wrong arguments, goes to
`cli/commands.py`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ("--config", "--override")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """The parsed arguments of `serve`."""

    config: Path | None
    overrides: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code. `arguments` defaults to those of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    plain = parse_plain_serve(given)
    if plain is not None:
        # Until the broker serves (`server/run.py`): what is imported stays, so looking for garbage in it
        # again and again would only make the start longer.
        gc.disable()
        from cli.serve import serve

        return serve(plain.config, plain.overrides)
    from cli.commands import run_command

    return run_command(given)


def parse_plain_serve(arguments: Sequence[str]) -> ServeArguments | None:
    """Returns the arguments of `serve` if all of them are known options, else None."""
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
