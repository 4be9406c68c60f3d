"""Ends a command of `kompakt` with its exit code and, on failure, a one-line error.

0     success
1     the broker refused, or the command failed
2     wrong arguments
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
    """A command failed: a one-sentence message for the user, and the exit code."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(work: Callable[[], Awaitable[int]]) -> NoReturn:
    """Run an asynchronous command and exit with the code it returns.

    Prints the message of a CommandFailed and exits with its code.
    """

    # asyncio.run takes a coroutine, and `work` may return any awaitable.
    async def await_work() -> int:
        return await work()

    end(lambda: asyncio.run(await_work()))


def end(work: Callable[[], int]) -> NoReturn:
    """Run a synchronous command and exit with the code it returns. Errors are handled as in `run`."""
    try:
        code = work()
    except CommandFailed as error:
        complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def confirm(question: str) -> None:
    """Ask a question on the terminal, and exit with 1 if the answer is no.

    Raises:
        CommandFailed: standard input is not a terminal, so a script has to pass --yes.
    """
    if not sys.stdin.isatty():
        raise CommandFailed(EXIT_USAGE, "standard input is not a terminal: add --yes to confirm")
    typer.confirm(question, abort=True, err=True)


def complain(sentence: str) -> None:
    """Print an error or a warning to standard error."""
    typer.echo(f"kompakt: {sentence}", err=True)
