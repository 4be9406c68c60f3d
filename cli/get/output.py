"""Prints the last values of keys: by itself a value, several as a table, or as lines and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed, complain
from cli.base.output import print_json, tolerated_closed_pipe, write_lines
from cli.base.record_text import LineWriter, TextFormat, cell_text, details_line
from cli.base.text import NULL
from cli.compact.client import Json
from cli.consume.latest_table import LatestTable
from cli.get.found_records import FoundRecord, records_of
from cli.produce.parse import parse_separator


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """How to print records."""

    separator: str | None = None
    """Stands between key and value. None: only values, or a table."""
    is_detailed: bool = False
    is_raw: bool = False
    """Whether to print the bytes of the value alone."""
    is_json: bool = False

    def check(self, keys_count: int) -> None:
        """Raise CommandFailed if the options do not go together, or not with so many keys."""
        has_separator = self.separator is not None
        if self.is_json + self.is_detailed + self.is_raw + has_separator > 1:
            raise CommandFailed(EXIT_USAGE, "--json, --details, --raw and -K cannot be combined")
        if self.is_raw and keys_count > 1:
            raise CommandFailed(EXIT_USAGE, "--raw takes one key")

    def line_writer(self) -> LineWriter | None:
        """Returns the function that formats a record as a line; None if no option chose one."""
        if self.is_detailed:
            return details_line
        return None if self.separator is None else _text(parse_separator(self.separator)).line


def print_answers(
    topic: str, keys: Sequence[bytes], answers: Sequence[Json], printing: Printing
) -> int:
    """Print the broker's answers about keys, which are in the order of the keys.

    Says on standard error which keys have no value, and which have several. Returns the exit code: 1
    if a key has no value.

    Raises:
        CommandFailed: --raw is given, and the key has a value in several partitions.
    """
    is_one = len(keys) == 1
    if printing.is_json:
        print_json(answers[0] if is_one else {"topic": topic, "records": answers})
    else:
        records = [each for answer in answers for each in records_of(answer)]
        _print_records(records, printing, is_one=is_one)
    for key, answer in zip(keys, answers, strict=True):
        for sentence in _remarks(topic, key, answer, is_one=is_one):
            complain(sentence)
    return EXIT_FAILED if any("error" in answer for answer in answers) else 0


def _print_records(records: Sequence[FoundRecord], printing: Printing, *, is_one: bool) -> None:
    if printing.is_raw and len(records) > 1:
        raise CommandFailed(EXIT_FAILED, f"--raw prints one value: {_choice(records)}")
    with tolerated_closed_pipe():
        if printing.is_raw:
            _write_raw(records)
            return
        line = printing.line_writer()
        if line is None and is_one and len(records) == 1:
            line = _text(None).line
        write_lines(_table(records) if line is None else map(line, records))


def _write_raw(records: Sequence[FoundRecord]) -> None:
    for record in records:
        sys.stdout.buffer.write(record.value)
    sys.stdout.buffer.flush()


def _table(records: Sequence[FoundRecord]) -> Iterator[bytes]:
    """Yields the rows of a table, as `kompakt consume --latest` prints it; none without records."""
    if not records:
        return
    table = LatestTable(key_bytes_max=max(len(record.key) for record in records))
    yield table.titles
    yield from map(table.line, records)


def _text(separator: bytes | None) -> TextFormat:
    return TextFormat(
        separator=separator,
        null=NULL.encode(),
        is_hex=False,
        is_for_terminal=sys.stdout.isatty(),
    )


def _remarks(topic: str, key: bytes, answer: Json, *, is_one: bool) -> Iterator[str]:
    """Yields what is said about a key beside its value."""
    if "error" in answer:
        yield answer["error"] if is_one else f"{cell_text(key)}: {answer['error']}"
        return
    records = records_of(answer)
    if answer.get("ambiguous"):
        yield f"{topic}: {cell_text(key)} is ambiguous: {_choice(records)}"
    for record in records:
        if record.undecoded:
            yield f"{topic}: {cell_text(key)} is not decoded: {record.undecoded}"


def _choice(records: Iterable[FoundRecord]) -> str:
    numbers = ", ".join(str(number) for number in sorted(each.partition for each in records))
    return f"partitions {numbers} have a value; --partition N chooses one"
