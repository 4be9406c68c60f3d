"""The table of a database whose rows Maxwell writes: a topic may have those of several tables (pure).

A record's key names the table, in one of two formats (`kafka_key_format`):

    {"database": "shop", "table": "orders", "pk.id": 7}      hash
    ["shop", "orders", [{"id": 7}]]                          array

The rows of a table without a primary key have no key of their own: a random `_uuid` stands there, or an
empty array. So has the end of a bootstrap. The key of a change of the schema is a bare UUID.

Source: Maxwell, RowMap.java and DDLMap.java, and what it wrote (tests/conformance/transcripts).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pipeline.offsets.cut import TableRefused

SCHEMA_CHANGES = ("database-", "table-")
"""How the `type` of an event begins that is no row's, and whose key names no table."""
BOOTSTRAPS = ("bootstrap-start", "bootstrap-complete")
"""Events that say when the rows of a table are read."""
NO_PRIMARY_KEY = "the table has no primary key, so its rows have no keys of their own"
NOT_MAXWELLS = "the key does not name a table, as those of Maxwell do"


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a database."""

    database: str
    name: str

    @classmethod
    def parse(cls, text: str) -> SourceTable:
        """Read `DATABASE.TABLE`. Raises TableRefused."""
        database, _, name = text.partition(".")
        if not database or not name:
            raise TableRefused(f"--source-table must be DATABASE.TABLE, not {text}")
        return cls(database, name)


@dataclass(frozen=True, slots=True)
class RowKey:
    """What a key says."""

    table: SourceTable | None
    """None: it names none."""
    has_columns: bool
    """Whether it has those of a primary key."""

    @classmethod
    def read(cls, key: bytes) -> RowKey:
        """Read a key. One that is not Maxwell's names no table."""
        try:
            said = json.loads(key)
        except (ValueError, RecursionError):
            return cls(None, has_columns=False)
        match said:
            case {"database": str(database), "table": str(name)}:
                return cls(SourceTable(database, name), has_columns="_uuid" not in said)
            case [str(database), str(name), *columns]:
                return cls(SourceTable(database, name), has_columns=any(columns))
            case _:
                return cls(None, has_columns=False)


def is_row_of(table: SourceTable, key: RowKey, event_type: str | None) -> bool:
    """Returns whether a record is a row of a table.

    Args:
        event_type: what the value says, read only if the key has no columns; None if it says nothing.

    Raises:
        TableRefused: it may be one, but its key does not say which. The message is a clause.
    """
    if key.table is None:
        if event_type is not None and event_type.startswith(SCHEMA_CHANGES):
            return False
        raise TableRefused(NOT_MAXWELLS)
    if key.table != table or (not key.has_columns and event_type in BOOTSTRAPS):
        return False
    if not key.has_columns:
        raise TableRefused(NO_PRIMARY_KEY)
    return True
