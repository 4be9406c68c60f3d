"""How a command of `kompakt` ends: its exit code, and what went wrong as one sentence.

0     done
1     refused, or it failed
2     the command line is wrong
3     no Kompakt broker answers at the address
130   Ctrl-C
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import typer

EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 2, 3, 130


class CommandFailed(Exception):
    """A command cannot be done: one sentence for people, and the exit code for it."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(work: Callable[[], Awaitable[int]]) -> NoReturn:
    """Run a command that ends with its exit code; a CommandFailed becomes its sentence and code."""

    async def whole() -> int:
        return await work()

    end(lambda: asyncio.run(whole()))


def end(work: Callable[[], int]) -> NoReturn:
    """The same for a command that waits for nothing."""
    try:
        code = work()
    except CommandFailed as error:
        complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def confirm(question: str) -> None:
    """Ask on a terminal, and end with 1 for a no; programs have to say --yes."""
    if not sys.stdin.isatty():
        raise CommandFailed(EXIT_USAGE, "nobody is there to ask: add --yes to go on")
    typer.confirm(question, abort=True, err=True)


def complain(sentence: str) -> None:
    """One line on standard error."""
    typer.echo(f"kompakt: {sentence}", err=True)
