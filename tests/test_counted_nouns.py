"""Messages say "1 failure", not "1 failures": counts and their nouns come from `count_text`.

In an f-string, a fixed noun after a number cannot be right for both 1 and 2. This test finds such texts
in the sources; `cleaner/rules/text.py` has the function to use instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cli", "server", "cleaner", "replog", "pipeline", "demo")
"""The packages that may import `cleaner.rules.text`."""
PLURAL = re.compile(r" (?:([a-z]+) )?([a-z]{2,}s)\b(?!/)")
COUNT_IN_LOG = re.compile(r"%(?:\.\d)?[df] (?:[a-z]+ )?([a-z]{2,}s)\b")
NO_PLURALS = frozenset(
    re.findall(
        r"\w+",
        "acks always answers as begins belongs brings comes does ends exists fits follows gets goes"
        " has holds is its joins lacks leads less makes ms needs names pins process rejoins repeats"
        " rests rolls runs says sends seems shows starts stays sums syncs takes this thus tries us was"
        " waits works writes yes",
    )
)
"""Words that end in s and are not plurals."""
BOUNDS = re.compile(r"(?:_max|_MAX|size_max)$")
"""Names of values that are never 1."""
NEVER_ONE = frozenset(
    {"partitions_count partitions", "controller_id only supports", "count login modules"}
)
"""A value with the words after it: a count that exceeds a bound, and an id, which is not a count."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each value in a text that a plural follows: the line, and the words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield from _in_f_string(node)
        elif isinstance(node, ast.Call) and _is_log(node):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                for found in COUNT_IN_LOG.finditer(first.value):
                    if found[1] not in NO_PLURALS:
                        yield node.lineno, found[0]


def _in_f_string(node: ast.JoinedStr) -> Iterator[tuple[int, str]]:
    for value, text in zip(node.values, node.values[1:], strict=False):
        if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
            continue
        found = PLURAL.match(str(text.value))
        if (
            found
            and NO_PLURALS.isdisjoint(found.groups())
            and not BOUNDS.search(ast.unparse(value.value))
        ):
            yield node.lineno, ast.unparse(value.value) + found[0]


def _is_log(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "_log"


SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_no_count_has_a_noun_that_is_wrong_for_one() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in SOURCES
        for line, words in texts(ast.parse(path.read_text("utf-8")))
        if words not in NEVER_ONE
    ]

    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'f"{n} failures"',
        'f"after {n:,} torn bytes"',
        '_log.info("%d logs", n)',
        '_log.warning("%s: %d old logs", a, n)',
    ],
)
def test_a_wrong_noun_is_found(source: str) -> None:
    assert list(texts(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        'f"{name} is there"',
        'f"{name} has members"',
        'f"{rate:,.0f} records/s"',
        'f"at most {LOGS_MAX} logs"',
        '_log.info("%d is", n)',
    ],
)
def test_any_other_text_is_not(source: str) -> None:
    assert not list(texts(ast.parse(source)))
