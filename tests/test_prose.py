"""Docstrings, comments, messages and documents avoid the words that CONTRIBUTING.md rules out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".pyi", ".h", ".md", ".yml", ".yaml", ".toml", ".sh"}
SKIPPED = {"CHANGELOG.md", "CONTRIBUTING.md", "tests/test_prose.py"}
FOLDERS = (
    "cli",
    "bench",
    "cleaner",
    "demo",
    "docker",
    "docs",
    "metrics",
    "pipeline",
    "protocol",
    "server",
    "storage",
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
}
"""Patterns to avoid, and what to write instead."""


def texts() -> list[Path]:
    found = [path for folder in FOLDERS for path in (CHECKOUT / folder).rglob("*")]
    found += CHECKOUT.glob("*.md")
    return sorted(
        path
        for path in found
        if path.suffix in SUFFIXES and str(path.relative_to(CHECKOUT)) not in SKIPPED
    )


@pytest.mark.parametrize("folder", [*FOLDERS, "."])
def test_prose_is_plain(folder: str) -> None:
    """Lists all offenders of a folder: file, line, the words found and what to write instead."""
    offenders = [
        f"{path.relative_to(CHECKOUT)}:{number}: {match[0]!r}: {instead}"
        for path in texts()
        if path.relative_to(CHECKOUT).parts[0] == folder
        or (folder == "." and path.parent == CHECKOUT)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for pattern, instead in INSTEAD.items()
        if (match := re.search(pattern, line, re.IGNORECASE))
    ]
    assert not offenders, "\n".join(offenders)
