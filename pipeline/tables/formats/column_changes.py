"""What a table's columns become when the values have others: decided here, then done by each format.

    added      values have a column that the table lacks
    widened    values have a type that holds all values of the table's type
    renamed    values have a column whose schema says that it once had the name of the table's (an alias)
    dropped    values no longer have a column

What else differs is refused before anything is written. So is a column that is gone while another is
new: a column that was renamed, but has no alias, looks the same, and its values would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
)

from pipeline.offsets.cut import REWRITE_HINT, TableRefused
from pipeline.tables.formats.column_names import ENDS_OF_VALUES, ORIGIN, UNPARSED
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.formats.merge_clauses import quoted_name

OURS = frozenset({*ORIGIN, UNPARSED, *ENDS_OF_VALUES})
"""Columns that are not of the value, and stay."""
INTEGERS: Sequence[type[DataType]] = (ByteType, ShortType, IntegerType, LongType)
FLOATS: Sequence[type[DataType]] = (FloatType, DoubleType)
Columns = Mapping[str, DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChanges:
    """How a table's columns become those of the rows."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    """By the name in the table: the new one."""
    widened: Columns = field(default_factory=dict)
    """By the new name: the new type."""
    dropped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def alters(self) -> bool:
        """Whether columns change that the table has."""
        return bool(self.renamed or self.widened or self.dropped)


def changes_of(
    table: StructType,
    rows: StructType,
    evolution: Evolution,
    former_names: Mapping[str, Sequence[str]],
    key_column: str,
) -> ColumnChanges:
    """Returns what must change of a table's columns before it takes the rows (pure).

    Args:
        former_names: by column of the rows: the names that it had before.

    Raises:
        TableRefused: the rows do not fit the table's columns, and these may not change.
    """
    held = {column.name: column.dataType for column in table.fields}
    gives = {column.name: column.dataType for column in rows.fields}
    renamed = renames(held, gives, former_names)
    has = {renamed.get(name, name): kind for name, kind in held.items()}
    found = ColumnChanges(
        renamed=renamed,
        widened={
            name: gives[name]
            for name, kind in has.items()
            if name in gives and not is_same(kind, gives[name])
        },
        dropped=tuple(sorted(has.keys() - gives.keys())),
        added=tuple(name for name in gives if name not in has),
    )
    why = why_not(found, {**held, **has}, gives, evolution, key_column)
    if why is not None:
        raise TableRefused(f"the schema does not fit the table: {why}")
    return found


def renames(
    has: Columns, gives: Columns, former_names: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Returns the columns of the table that have another name in the rows, with that name."""
    return {
        old: name
        for name in gives
        if name not in has
        for old in former_names.get(name, ())
        if old in has and old not in gives
    }


def why_not(
    found: ColumnChanges, has: Columns, gives: Columns, evolution: Evolution, key_column: str
) -> str | None:
    """Returns why columns may not change like that, as a clause; None if they may."""

    def differs(name: str) -> str:
        table, schema = type_in(has, name), type_in(gives, name)
        return f"column {name} is {table} in the table and {schema} in the requested schema"

    never = impossible(found, has, key_column)
    if never:
        return differs(never[0])
    if len(set(found.renamed.values())) < len(found.renamed):
        return f"columns {' and '.join(sorted(found.renamed))} would get one name"
    if found.dropped and found.added:
        gone, new = found.dropped[0], min(found.added)
        return (
            f"column {gone} is gone and {new} is new: if that is its new name, say so by --renamed"
            f" {gone}={new} (values in Avro), and else {REWRITE_HINT}"
        )
    if found.alters and evolution is not Evolution.ALL:
        name = min((*found.renamed, *found.widened, *found.dropped))
        return f"{differs(name)}: --evolution all changes it"
    if found.added and evolution is Evolution.STRICT:
        return f"{differs(min(found.added))}: --evolution add adds it"
    return None


def impossible(found: ColumnChanges, has: Columns, key_column: str) -> list[str]:
    """Returns the columns whose change no policy allows."""
    ours = {*OURS, key_column}
    names = {name.lower() for name in has}
    misfits = {name for name, kind in found.widened.items() if not is_wider(has[name], kind)}
    lost = {name for name in found.dropped if name in ours}
    clashing = {name for name in found.added if name.lower() in names or name in ours}
    return sorted(misfits | lost | clashing)


def type_in(columns: Columns, name: str) -> str:
    return columns[name].simpleString() if name in columns else "missing"


def is_same(one: DataType, other: DataType) -> bool:
    """Returns whether two types are the same, apart from what may be null."""
    return bool(one.simpleString() == other.simpleString())


def is_wider(old: DataType, new: DataType) -> bool:
    """Returns whether a type is the same as another one, or a wider one that Delta and Iceberg can make
    of it."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    if isinstance(old, StructType) and isinstance(new, StructType):
        pairs = zip(old.fields, new.fields, strict=False)
        return old.names == new.names and all(is_wider(a.dataType, b.dataType) for a, b in pairs)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return is_wider(old.elementType, new.elementType)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return is_same(old.keyType, new.keyType) and is_wider(old.valueType, new.valueType)
    for ladder in (INTEGERS, FLOATS):
        if type(old) in ladder and type(new) in ladder:
            return ladder.index(type(old)) <= ladder.index(type(new))
    return is_same(old, new)


def widened_paths(old: DataType, new: DataType, path: str) -> list[tuple[str, DataType]]:
    """Returns the paths within a column, as SQL names them, at which a scalar type has become wider."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        return [
            found
            for a, b in zip(old.fields, new.fields, strict=True)
            for found in widened_paths(a.dataType, b.dataType, f"{path}.{quoted_name(a.name)}")
        ]
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return widened_paths(old.elementType, new.elementType, f"{path}.element")
    if isinstance(old, MapType) and isinstance(new, MapType):
        return widened_paths(old.valueType, new.valueType, f"{path}.value")
    return [] if is_same(old, new) else [(path, new)]


def altered(rows: DataFrame, changes: ColumnChanges) -> DataFrame:
    """Returns the rows of a table with its columns renamed, widened and dropped."""
    dropped = rows.drop(*changes.dropped).withColumnsRenamed(dict(changes.renamed))
    return dropped.withColumns(
        {name: F.col(quoted_name(name)).cast(kind) for name, kind in changes.widened.items()}
    )
