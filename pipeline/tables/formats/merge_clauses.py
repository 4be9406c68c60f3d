"""The clauses of the MERGEs that change a table by newer records, in Spark SQL (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.tables.formats.column_names import ENDS, TOMBSTONE, VALID_TO, VALID_TO_OFFSET


def newer_records(identity: Sequence[str], columns: Sequence[str]) -> str:
    """Returns the clauses of a MERGE of last records; an older one never changes a newer row.

    Args:
        identity: the columns that identify a row.
        columns: all columns of the table's rows.
    """
    newer = "s._offset > t._offset"
    # With a `t.`, a column that is to be added would not be found.
    changes = ", ".join(f"{name} = s.{name}" for name in quoted(columns))
    return "\n".join(
        (
            f"ON {same_row(identity)}",
            f"WHEN MATCHED AND {newer} AND s.{TOMBSTONE} THEN DELETE",
            f"WHEN MATCHED AND {newer} THEN UPDATE SET {changes}",
            f"WHEN NOT MATCHED AND NOT s.{TOMBSTONE} {then_insert(columns)}",
        )
    )


def ends_and_values(identity: Sequence[str], columns: Sequence[str]) -> str:
    """Returns the clauses of the MERGE of changes into a history (see `history.py`)."""
    ended = f"{VALID_TO} = s._timestamp, {VALID_TO_OFFSET} = s._offset"
    return "\n".join(
        (
            f"ON s.{ENDS} AND t.{VALID_TO_OFFSET} IS NULL AND {same_row(identity)}",
            f"WHEN MATCHED THEN UPDATE SET {ended}",
            f"WHEN NOT MATCHED AND NOT s.{ENDS} {then_insert(columns)}",
        )
    )


def same_row(identity: Sequence[str]) -> str:
    return " AND ".join(f"t.{name} = s.{name}" for name in quoted(identity))


def then_insert(columns: Sequence[str]) -> str:
    names = quoted(columns)
    given = ", ".join(f"s.{name}" for name in names)
    return "\n".join((f"THEN INSERT ({', '.join(names)})", f"VALUES ({given})"))


def quoted(names: Sequence[str]) -> list[str]:
    return [quoted_name(name) for name in names]


def quoted_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
