"""The names of a table's columns beside those of the value; without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.offsets.cut import TableRefused

ORIGIN = ("_topic", "_partition", "_offset", "_timestamp")
TOPIC_PARTITION = "_topic_partition"
"""The name of `_partition` in Iceberg, which has a column `_partition` of its own."""
TOMBSTONE = "_tombstone"
"""The column that is true in a row that deletes its key; such a row never gets into a table."""
UNPARSED = "_unparsed"
VALID_TO, VALID_TO_OFFSET = ENDS_OF_VALUES = ("_valid_to", "_valid_to_offset")
"""The columns of a history, which says of each value until when its key had it."""
ENDS = "_ends"
"""The column that is true in a row that only ends the value that its key has in a history."""


def refuse_equal_names(names: Sequence[str]) -> None:
    """Raise TableRefused if two names are equal to Spark, which ignores case."""
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if twice:
        raise TableRefused(
            f"two columns would be named {twice[0]}: rename a field of the value, "
            "or the key with --key-column"
        )
