"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from server.dump_text import name_text

WIDTH = 100_000
"""Tables are not squeezed into a terminal: long lines wrap there, and nothing is cut off."""


def print_json(answer: Mapping[str, Any]) -> None:
    """One document."""
    typer.echo(json.dumps(answer, indent=2))


def progress_bars(*columns: ProgressColumn, is_shown: bool = True) -> Progress:
    """Bars on standard error if that is a terminal; they are erased at their end.

    What is printed meanwhile goes above the bars on a terminal. A file or a pipe gets it directly:
    rich by itself would send it to standard error.
    """
    console = Console(stderr=True)
    return Progress(
        *columns,
        console=console,
        disable=not (is_shown and console.is_terminal),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Collection[str]
) -> None:
    """Print a row a line: the columns named in `texts` begin on the left, the others are numbers.

    Cells may come from clients: no terminal obeys them.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True, justify="left" if title in texts else "right")
    for row in rows:
        table.add_row(*(Text(name_text(cell)) for cell in row))
    Console(width=WIDTH, highlight=False).print(table)
