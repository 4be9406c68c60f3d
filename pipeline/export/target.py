"""The interface of a table to an export, independent of its format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from pipeline.export.data_file import DataFile
from pipeline.offsets.cut import Cut


@dataclass(frozen=True, slots=True)
class Place:
    """Where new data files go."""

    folder: Path
    """It exists."""
    schema: pa.Schema
    """The columns as a file must have them, in Iceberg with the ids of its fields."""


class Target(Protocol):
    """A table of last values together with the offsets that it holds; both change in one step.

    It is as it was when it was opened: a commit fails if another program has changed it since.
    """

    def held(self) -> Cut | None:
        """Returns the table's offsets; None without a table. Raises TableRefused if it is not ours."""

    def columns(self) -> pa.Schema | None:
        """Returns the columns of the table; None without a table."""

    def files(self) -> Mapping[str, DataFile]:
        """Returns the table's data files, by their names. Those of other programs may be among them."""

    def begin(self, schema: pa.Schema) -> Place:
        """Returns where new data files go, which hold these columns. Raises TableRefused."""

    def commit(self, files: Sequence[DataFile], schema: pa.Schema, cut: Cut) -> None:
        """Make these files the whole table, in one step.

        Args:
            files: new ones in the folder of `begin`, and some of `files`.

        Raises:
            TableRefused: another program has changed the table meanwhile. It is unchanged by this.
        """

    def discard(self) -> None:
        """Undo `begin`, if nothing is to be committed. The new files are removed already."""

    def where(self) -> str:
        """Returns how people name what a reader opens."""


def spark_schema(schema: pa.Schema) -> dict[str, Any]:
    """Returns columns as Spark's JSON form of a StructType."""
    from deltalake import Schema

    # A table in Delta has its schema in Spark's form.
    found: dict[str, Any] = json.loads(Schema.from_arrow(schema).to_json())
    return found
