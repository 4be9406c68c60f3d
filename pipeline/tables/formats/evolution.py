"""What a stream may change of a table's columns; without Spark."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from pipeline.offsets.cut import TableRefused

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Evolution(enum.StrEnum):
    """What happens if the values have columns that the table lacks."""

    STRICT = "strict"
    """The job ends, and nothing is written."""
    ADD = "add"
    """They are added, in the commit of the rows that have them; they are null in all other rows. So a
    column with a default, which those rows should have, ends the job."""


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
