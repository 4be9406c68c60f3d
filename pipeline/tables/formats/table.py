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


@dataclass(frozen=True, slots=True)
class TableSize:
    """What a table takes in its storage, without what only its earlier versions need."""

    files: int
    size: int
    """In bytes."""
    file_target: int = 1 << 30
    """The size of the files that a rewrite makes of small ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """When a stream rewrites the small files that its micro-batches leave, and what it then deletes."""

    small_files_max: int
    retain_hours: int | None = None
    """Files that only versions older than this need are deleted; None: nothing is."""

    def is_due(self, size: TableSize, files_before: int | None) -> bool:
        """Returns whether a table has too many small files (pure).

        Args:
            files_before: those that the last rewrite of this run has left: partitions may each have one.
        """
        large = size.size // size.file_target
        return size.files - (large if files_before is None else files_before) > self.small_files_max


class Table(Protocol):
    """A table of last values together with the offsets that it holds; both change in one step."""

    def held(self) -> Cut | None:
        """Returns the table's offsets; None without a table. Raises TableRefused if it is not ours."""

    def read(self) -> DataFrame:
        """Returns the current rows."""

    def fitting(self, rows: DataFrame) -> DataFrame:
        """Returns the current rows with the columns that they will have once the table has taken these.

        Raises:
            TableRefused: it will not take them.
        """

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Replace all rows with these. Raises TableRefused."""

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Merge newer last records into an existing table. Raises TableRefused."""

    def size(self) -> TableSize:
        """Returns the files of an existing table."""

    def compact(self, retain_hours: int | None) -> None:
        """Rewrite small files as large ones; see `Upkeep`. The table keeps its rows and offsets.

        Raises:
            TableRefused: another program wrote the table at the same moment.
        """

    def confirm(self) -> None:
        """Ensure that other programs' commits to the table cannot push out its offsets."""
