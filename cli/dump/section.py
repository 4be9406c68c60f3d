"""What `kompakt dump-log` prints of one file: facts about the whole file, and an iterator of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Section:
    """The contents of one file, or a list of a directory's files or logs."""

    kind: str
    path: str
    facts: Row = field(default_factory=dict)
    rows: Iterator[Row] = field(default_factory=lambda: iter(()))
    times: frozenset[str] = frozenset()
    """Names of the facts and columns that are timestamps in ms."""
