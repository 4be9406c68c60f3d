"""The formats of what is loaded. Does not import Spark."""

from __future__ import annotations

import enum


class SourceFormat(enum.StrEnum):
    """The format of the table to load."""

    DELTA = "delta"
    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


class RecordFormat(enum.StrEnum):
    """How columns become the bytes of a key or a value."""

    JSON = "json"
    """An object with a field for each column."""
    TEXT = "text"
    """One column: its bytes, or what Spark writes of it as text."""
