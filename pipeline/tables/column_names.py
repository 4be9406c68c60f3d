"""The names of a table's columns beside those of the value; without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.offsets.cut import TableRefused

ORIGIN = ("_topic", "_partition", "_offset", "_timestamp")
TOMBSTONE = "_tombstone"
"""The column that is true in a row that deletes its key; such a row never gets into a table."""
UNPARSED = "_unparsed"


def refuse_equal_names(names: Sequence[str]) -> None:
    """Raise TableRefused if two names are equal to Spark, which ignores case."""
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if twice:
        raise TableRefused(
            f"two columns would be named {twice[0]}: rename a field of the value, "
            "or the key with --key-column"
        )
