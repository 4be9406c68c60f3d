"""Docstrings, comments, messages and documents avoid the words that CONTRIBUTING.md rules out.

In tests only comments, docstrings and documents count: data and names of functions may have any words.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".pyi", ".h", ".md", ".yml", ".yaml", ".toml", ".sh"}
SKIPPED = {"CONTRIBUTING.md", "tests/test_prose.py"}
FOLDERS = (
    "cli",
    "bench",
    "cleaner",
    "replog",
    "demo",
    "docker",
    "docs",
    "metrics",
    "pipeline",
    "protocol",
    "schemas",
    "server",
    "storage",
    "tests",
)

INSTEAD = {
    r"\bwhoever\b": "name the actor: the client that, the thread that",
    r"\banew\b": "again",
    r"\b(is|are|was|were|be|been|being) told\b": "receives, gets, reads, is answered with",
    r"\btold (of|by|that|what|to)\b": "receives, gets; says, names",
    r"\bfor who\b": "for readers that, for those who",
    r"\bwhat there is\b": "name the thing",
    r"\bnone that\b": "no ... that",
    r"\bfarther\b": "newer, later, beyond",
    r"\blies:": "is inconsistent with",
    r"\bbut for\b": "except",
    r"\bsomebody\b": "name the actor",
    r"\bsome one\b": "name the actor",
    r"\bcomes to\b": "is, reaches, totals",
    r"\bhas to say\b": "reports",
    r"\bwhat becomes of\b": "the outcome of",
    r"\bwhat became of\b": "the outcome of",
    r"\bsees? \w+ off\b": "drain",
    r"\bhow far it is\b": "its progress",
    r"\bby now\b": "already",
    r", too, ": "also, before the verb",
    r"\bany more\b": "no longer; or leave it out",
    r"\bgo(es)? on\b": "continue",
    r"\bserves? on\b": "stays in service",
    r"\bbehind (the (commit|cut|snapshot|(file|log)'s end)|its (end|snapshot)|a snapshot)\b": "after",
    r"\b(is|are) of (another|lease|segment)\b": "belongs to",
    r"\bbut has not\b": "lacks",
    r"\bover (crashes|kills|restarts|a (crash|kill|restart))\b": "across, despite, after",
    r"\bhears?\b": "gets, is answered with",
    r"\bfor sure\b": "always, certainly",
}
"""Patterns to avoid, and what to write instead."""


@cache
def texts() -> list[Path]:
    found = [path for folder in FOLDERS for path in (CHECKOUT / folder).rglob("*")]
    found += CHECKOUT.glob("*.md")
    return sorted(
        path
        for path in found
        if path.suffix in SUFFIXES and str(path.relative_to(CHECKOUT)) not in SKIPPED
    )


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines to check, with their numbers."""
    text = path.read_text("utf-8")
    if path.suffix == ".py" and path.relative_to(CHECKOUT).parts[0] == "tests":
        yield from _comments_and_docstrings(text)
    else:
        yield from enumerate(text.splitlines(), 1)


def _comments_and_docstrings(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if is_docstring or token.type == tokenize.COMMENT:
            yield from enumerate(token.string.splitlines(), token.start[0])


@pytest.mark.parametrize("folder", [*FOLDERS, "."])
def test_prose_is_plain(folder: str) -> None:
    """Lists all offenders of a folder: file, line, the words found and what to write instead."""
    offenders = [
        f"{path.relative_to(CHECKOUT)}:{number}: {match[0]!r}: {instead}"
        for path in texts()
        if path.relative_to(CHECKOUT).parts[0] == folder
        or (folder == "." and path.parent == CHECKOUT)
        for number, line in lines_of(path)
        for pattern, instead in INSTEAD.items()
        if (match := re.search(pattern, line, re.IGNORECASE))
    ]
    assert not offenders, "\n".join(offenders)
