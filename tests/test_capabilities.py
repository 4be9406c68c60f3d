"""docs/reference/capabilities.md names tests that exist, and counts its rows right."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = (CHECKOUT / "docs" / "reference" / "capabilities.md").read_text("utf-8")
ROWS_BY_TABLE = {"Capabilities": 68, "Beyond them": 15}
TABLES = pytest.mark.parametrize("table", ROWS_BY_TABLE)

WHOLE, PARTLY = "whole", "partly"
STATES = (WHOLE, PARTLY, "absent", "not applicable", "elsewhere")

NAMED = re.compile(r"`(tests/[\w/]+/test_\w+\.py|tests/test_\w+\.py)(?:::(test_\w+))?`")
"""A file of tests, or one test in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One capability."""

    number: str
    capability: str
    state: str
    missing: str
    """What is missing, or the reason for the state."""
    shown_by: str


def rows(table: str) -> list[Row]:
    """Returns the rows of the table under a heading of the second level."""
    (section,) = re.findall(rf"^## {table}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [
        Row(number=number, capability=capability, state=state, missing=missing, shown_by=shown_by)
        for number, capability, state, missing, shown_by in cells
    ]


@cache
def defined_in(file: str) -> frozenset[str]:
    """Returns the names of the tests that a file defines, also in classes; none if there is no file."""
    path = CHECKOUT / file
    if not path.is_file():
        return frozenset()
    tops = ast.parse(path.read_text("utf-8")).body
    classes = [node for node in tops if isinstance(node, ast.ClassDef)]
    return frozenset(
        node.name
        for node in (*tops, *(each for found in classes for each in found.body))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


@TABLES
def test_the_rows_are_numbered_without_gaps(table: str) -> None:
    numbers = [row.number for row in rows(table)]

    assert numbers == [str(number) for number in range(1, ROWS_BY_TABLE[table] + 1)]


@TABLES
def test_each_row_has_a_known_state_and_says_why_unless_it_is_whole(table: str) -> None:
    for row in rows(table):
        assert row.capability, row
        assert row.state in STATES, row
        assert (row.missing == "") == (row.state == WHOLE), row


@TABLES
def test_a_row_that_is_whole_or_partly_there_names_a_test(table: str) -> None:
    unproven = [
        row
        for row in rows(table)
        if row.state in (WHOLE, PARTLY) and not NAMED.search(row.shown_by)
    ]

    assert unproven == []


@TABLES
def test_every_test_that_is_named_exists(table: str) -> None:
    for row in rows(table):
        assert NAMED.sub("", row.shown_by).strip(", ") == "", f"{row.number}: not only tests"
        for file, name in NAMED.findall(row.shown_by):
            assert defined_in(file), f"{row.number}: there are no tests in {file}"
            assert not name or name in defined_in(file), f"{row.number}: {file} has no {name}"


@TABLES
def test_the_numbers_in_the_text_are_those_of_the_table(table: str) -> None:
    (counts,) = re.findall(rf"^- {table}: (.+)\.$", PAGE, re.MULTILINE)
    found = Counter(row.state for row in rows(table))

    assert counts == ", ".join(f"{found[state]} {state}" for state in STATES)


def test_the_text_before_the_tables_is_short() -> None:
    text, _, _ = PAGE.partition("\n## ")
    lines = [line for line in text.splitlines()[1:] if line]

    assert len(lines) <= 10
    assert max(map(len, lines)) <= 128
