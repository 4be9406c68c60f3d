"""The interface of a table to a job, independent of its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.evolution import Evolution

IDENTITY = ("_topic", "_partition")
"""The columns that identify a row, together with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a new table."""

    key_column: str = "key"
    partition_by: Sequence[str] = ()
    write_options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's writer for the format."""


DEFAULT_LAYOUT = Layout()


class Table(Protocol):
    """A table of last values together with the offsets that it holds; both change in one step."""

    def held(self) -> Cut | None:
        """Returns the table's offsets; None without a table. Raises TableRefused if it is not ours."""

    def columns(self) -> StructType:
        """Returns the columns of an existing table."""

    def read(self) -> DataFrame:
        """Returns the current rows."""

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Replace all rows with these. Raises TableRefused."""

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Merge newer last records into an existing table. Raises TableRefused."""

    def confirm(self) -> None:
        """Ensure that other programs' commits to the table cannot push out its offsets."""


def columns_to_add(table: StructType, rows: StructType, evolution: Evolution) -> list[str]:
    """Returns the columns of the rows that the table lacks and may get.

    Raises:
        TableRefused: the rows do not fit the table's columns, or would leave one empty.
    """
    has = {column.name: column.dataType.simpleString() for column in table.fields}
    gives = {column.name: column.dataType.simpleString() for column in rows.fields}
    new = [name for name in gives if name not in has]
    known = {name.lower() for name in has}
    may_add = evolution is Evolution.ADD and not any(name.lower() in known for name in new)
    differ = sorted(name for name in has if has[name] != gives.get(name))
    if not differ and (may_add or not new):
        return new
    name = (differ or sorted(new))[0]
    hint = "" if differ or evolution is Evolution.ADD else ": --evolution add adds it"
    raise TableRefused(
        f"the schema does not fit the table: column {name} is {has.get(name, 'missing')} in the "
        f"table and {gives.get(name, 'missing')} in the requested schema{hint}"
    )
