"""Prints sections, findings and summaries: as tables for people, or as JSON with one object per line.

Rows are printed as they arrive. The table of a long file is printed in pages; the columns never get
narrower, so the pages line up.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.base.text import bytes_text, name_text, time_text
from cli.dump.kinds import Kind
from cli.dump.section import Row, Section
from cli.dump.segment import json_record
from storage.verify.findings import Finding, LogReport, Severity

PAGE_ROWS = 200
WIDTH = 10_000
"""Wider than any terminal, so that rich does not break lines: the terminal wraps them."""
INDENT = "    "
"""Starts the second and later lines of a row that is too long for one line."""

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


class Output(Protocol):
    """Prints the results of a dump or a verification."""

    def section(self, section: Section) -> None:
        """Print the contents of one file."""

    def finding(self, finding: Finding) -> None:
        """Print an error, a warning or a note."""

    def log(self, report: LogReport) -> None:
        """Print the counts of one log, without its findings."""

    def summary(self, totals: Row) -> None:
        """Print the totals at the end of a verification."""


class JsonOutput:
    """Prints one JSON object per line. Its member `type` names its kind."""

    def section(self, section: Section) -> None:
        self._print("file", {"kind": section.kind, "path": section.path, **section.facts})
        for row in section.rows:
            kind = row.pop("type", "row")
            self._print(kind, json_record(row) if kind == "record" else row)

    def finding(self, finding: Finding) -> None:
        values = {**asdict(finding), "severity": finding.severity.value}
        self._print("finding", {**values, "check": finding.check.value})

    def log(self, report: LogReport) -> None:
        values = asdict(report)
        values["findings"] = len(report.findings)
        self._print("log", values)

    def summary(self, totals: Row) -> None:
        self._print("summary", totals)

    def _print(self, kind: str, values: Row) -> None:
        # json.dumps escapes to ASCII, so a client's control characters do not reach the terminal.
        sys.stdout.write(json.dumps({"type": kind, **values}) + "\n")


class TableOutput:
    """Prints tables, with colours only on a terminal."""

    def __init__(self) -> None:
        self._console = Console(width=WIDTH, highlight=False)

    def section(self, section: Section) -> None:
        self._line(f"{section.path}: {section.kind}", "bold")
        for name, value in section.facts.items():
            self._line(f"  {_words(name)}: {_cell(name, value, section.times)}")
        if section.kind == Kind.SEGMENT.value:
            self._batches(section)
        else:
            self._rows(section)

    def finding(self, finding: Finding) -> None:
        place = finding.path
        if finding.position is not None:
            place += f" at byte {finding.position}"
        line = Text(finding.severity.value, style=STYLES[finding.severity])
        self._console.print(line.append(f": {place}: {finding.text}", style="default"))

    def log(self, report: LogReport) -> None:
        """Print nothing: the summary counts the logs."""

    def summary(self, totals: Row) -> None:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in totals:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_row(*(f"{value:,}" for value in totals.values()))
        self._console.print(table)

    # ---------------------------------------------------------------- rows

    def _rows(self, section: Section) -> None:
        columns: _Columns | None = None
        for page in _pages(section.rows):
            names = list(page[0])
            cells = [[_cell(name, row[name], section.times) for name in names] for row in page]
            if columns is None:
                columns = _Columns([_words(name) for name in names], width=line_width())
                self._line(columns.header(cells), "bold")
            self._write(columns.lines(cells))

    def _batches(self, section: Section) -> None:
        columns: _Columns | None = None
        for page in _pages(section.rows):
            for kind, rows in itertools.groupby(page, key=lambda row: str(row["type"])):
                if kind == "record":
                    self._write(map(_record_line, rows))
                elif kind == "damage":
                    self._damage(rows)
                else:
                    cells = [list(_batch_cells(row)) for row in rows]
                    if columns is None:
                        columns = _Columns(
                            list(BATCH_COLUMNS),
                            list(BATCH_COLUMNS.values()),
                            width=line_width(),
                        )
                        self._line(columns.header(cells), "bold")
                    self._write(columns.lines(cells))

    def _damage(self, rows: Iterable[Row]) -> None:
        for row in rows:
            place = f"at byte {row['position']}: " if "position" in row else ""
            self._line(f"  damaged {place}{row['reason']}", STYLES[Severity.ERROR])

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _write(self, lines: Iterable[str]) -> None:
        """Print plain lines directly: with rich, a long file would take minutes."""
        self._console.file.write("".join(f"{line}\n" for line in lines))


def line_width() -> int:
    """Returns the width of the terminal. In a pipe or a file a row is one line of any length.

    `COLUMNS` counts only on a terminal: a shell may export it for other processes, and CI sets it.
    """
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return WIDTH


class _Columns:
    """Aligns cells in columns that only get wider.

    A row that is too long for one line continues on the next, broken between two columns.
    """

    __slots__ = ("_names", "_width", "_widths")

    def __init__(self, names: Sequence[str], widths: Sequence[int] = (), *, width: int) -> None:
        self._names = names
        self._widths = list(widths) or [0] * len(names)
        self._width = width

    def header(self, cells: Sequence[Sequence[str]]) -> str:
        """Returns the line of column names, aligned with `cells`, the first rows."""
        return next(self.lines([self._names, *cells]))

    def lines(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """Returns the lines of rows."""
        self._widths = [
            max(width, *map(len, column))
            for width, column in zip(self._widths, zip(*rows, strict=True), strict=True)
        ]
        return (self._line(row) for row in rows)

    def _line(self, row: Sequence[str]) -> str:
        text, room = "", self._width
        for name, width, cell in zip(self._names, self._widths, row, strict=True):
            if text and len(GAP) + width > room:
                text, room = text.rstrip() + "\n" + INDENT, self._width - len(INDENT)
            elif text:
                text, room = text + GAP, room - len(GAP)
            text += cell.ljust(width) if name in TEXTS else cell.rjust(width)
            room -= width
        return text.rstrip()


GAP = "  "
"""Separates two columns."""


TEXTS = {"name", "topic", "problem", "line", "key", "value", "operations", "batches"}
TEXTS |= {"codec", "crc", "flags", "result", "reason", "error", "rest"}
"""Columns that are left-aligned."""

BATCH_COLUMNS = {
    "position": 10,
    "base offset": 11,
    "last offset": 11,
    "records": 7,
    "bytes": 9,
    "codec": 6,
    "epoch": 5,
    "producer/epoch/seq": 18,
    "largest timestamp": 24,
    "crc": 11,
    "flags": 5,
}
"""Columns with minimum widths, so that the first page is as wide as later ones."""


def _record_line(row: Row) -> str:
    headers = ", ".join(f"{name_text(key)}={bytes_text(value)}" for key, value in row["headers"])
    time = time_text(row["timestamp"], with_raw=True)
    pair = f"{bytes_text(row['key'])} = {bytes_text(row['value'])}"
    return f"    {row['offset']}  {time}  {pair}" + (f"  headers: {headers}" if headers else "")


def _batch_cells(row: Row) -> Iterator[str]:
    for name in ("position", "base_offset", "last_offset", "records", "bytes", "codec"):
        yield str(row[name])
    yield str(row["leader_epoch"])
    producer = (row["producer_id"], row["producer_epoch"], row["base_sequence"])
    yield "-" if producer[0] < 0 else "{}/{}/{}".format(*producer)
    yield time_text(row["max_timestamp"])
    yield f"{row['crc']} ok"
    yield ", ".join(_flags(row))


def _flags(row: Row) -> Iterator[str]:
    if row["timestamp_type"] == "log_append_time":
        yield "log append time"
    if row["is_transactional"]:
        yield "transactional"
    if row["is_control"]:
        yield "control"
    if row["delete_horizon_ms"] is not None:
        yield f"delete horizon {time_text(row['delete_horizon_ms'], with_raw=True)}"


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := list(itertools.islice(rows, PAGE_ROWS)):
        yield page


def _words(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _cell(name: str, value: Any, times: frozenset[str]) -> str:
    if name in times:
        return time_text(value)
    if value is None:
        return "-"
    if name == "batches" and isinstance(value, list):
        pattern = "{first_sequence}-{last_sequence} at {last_offset}"
        return ", ".join(pattern.format(**batch) for batch in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(text)
