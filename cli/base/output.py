"""Prints the output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from cli.base.text import name_text

WIDTH = 100_000
"""Wider than any terminal: long rows wrap there, instead of rich truncating their cells."""


def print_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(answer, indent=2))


def write_lines(lines: Iterable[bytes]) -> None:
    """Print lines of bytes, which need not be valid text, and flush them."""
    out = sys.stdout.buffer
    out.writelines(line + b"\n" for line in lines)
    out.flush()


@contextmanager
def tolerated_closed_pipe() -> Iterator[None]:
    """Stop quietly when the reader of standard output closes the pipe, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        # Otherwise Python would fail again at exit, when it flushes the buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def progress_bars(*columns: ProgressColumn, is_shown: bool = True) -> Progress:
    """Returns progress bars on standard error, which disappear when done.

    They are disabled if standard error is not a terminal. If standard output is a terminal, output
    printed in the meantime appears above the bars. If it is a file or a pipe, output goes there
    directly: rich by default would redirect it to standard error.
    """
    console = Console(stderr=True)
    return Progress(
        *columns,
        console=console,
        disable=not (is_shown and console.is_terminal),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )


@contextmanager
def byte_bar(what: str, total: int, *, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar, with rate and time left, by a number of bytes."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with progress_bars(*columns, is_shown=is_shown) as bars:
        task = bars.add_task(what, total=total)
        yield lambda count: bars.advance(task, count)


def count_cell(count: int | None, *, is_exact: bool) -> str:
    """Returns a count for a table: ~1,234 if it is estimated, - if it is not known."""
    if count is None:
        return "-"
    return f"{count:,}" if is_exact else f"~{count:,}"


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Collection[str]
) -> None:
    """Print a table with one line per row.

    Columns whose titles are in `texts` are left-aligned, the others (numbers) right-aligned. Cells
    may contain text from clients, so control characters are escaped.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True, justify="left" if title in texts else "right")
    for row in rows:
        table.add_row(*(Text(name_text(cell)) for cell in row))
    Console(width=WIDTH, highlight=False).print(table)
