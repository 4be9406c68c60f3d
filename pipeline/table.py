"""What a job asks of a table, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipeline.cut import Cut, TableRefused

IDENTITY = ("_topic", "_partition")
"""With the key: what tells rows apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a new table is laid out."""

    key_column: str = "key"
    partition_by: Sequence[str] = ()
    write_options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's writer for the format."""


DEFAULT_LAYOUT = Layout()


class Table(Protocol):
    """A table of last values and the offsets that it holds, which change in one step."""

    def held(self) -> Cut | None:
        """None where there is no table. Raises TableRefused where there is another one's."""

    def columns(self) -> StructType:
        """Those of a table that is there."""

    def read(self) -> DataFrame:
        """The table as it is now."""

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Make these rows the table. Raises TableRefused."""

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Bring newer last records into a table that is there. Raises TableRefused."""

    def confirm(self) -> None:
        """Make sure that what the table holds stays written, whoever else commits to it."""


def refuse_other_columns(table: StructType, rows: StructType) -> None:
    """Raises TableRefused where rows would not fit into the table, or leave a column of it empty."""
    has = {column.name: column.dataType.simpleString() for column in table.fields}
    gives = {column.name: column.dataType.simpleString() for column in rows.fields}
    differ = sorted(name for name in has.keys() | gives.keys() if has.get(name) != gives.get(name))
    if differ:
        name = differ[0]
        raise TableRefused(
            f"the schema does not fit the table: column {name} is {has.get(name, 'missing')} in the "
            f"table and {gives.get(name, 'missing')} in what was asked for"
        )
