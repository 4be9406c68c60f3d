"""The interface of a table to a job, independent of its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame

from pipeline.offsets.cut import Cut

IDENTITY = ("_topic", "_partition")
"""The columns that identify a row, together with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a new table, and what names the columns of one."""

    key_column: str = "key"
    partition_by: Sequence[str] = ()
    write_options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's writer for the format."""
    former_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By column: the names that it had before, and may have in an existing table."""


DEFAULT_LAYOUT = Layout()


class Table(Protocol):
    """A table of last values together with the offsets that it holds; both change in one step."""

    def held(self) -> Cut | None:
        """Returns the table's offsets; None without a table. Raises TableRefused if it is not ours."""

    def read(self) -> DataFrame:
        """Returns the current rows."""

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Replace all rows with these. Raises TableRefused."""

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Merge newer last records into an existing table. Raises TableRefused."""

    def confirm(self) -> None:
        """Ensure that other programs' commits to the table cannot push out its offsets."""
