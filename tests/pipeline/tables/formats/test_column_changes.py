"""Which changes a table's columns may make, decided without a session."""

from __future__ import annotations

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.evolution import Evolution

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.tables.formats.column_changes import (
    ColumnChanges,
    changes_of,
    is_wider,
    widened_paths,
)

SCALARS: list[DataType] = [
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(10, 2),
    DecimalType(12, 2),
    DecimalType(12, 3),
    StringType(),
    BooleanType(),
    DateType(),
    TimestampType(),
]
WIDER = {
    ("tinyint", "smallint"),
    ("tinyint", "int"),
    ("tinyint", "bigint"),
    ("smallint", "int"),
    ("smallint", "bigint"),
    ("int", "bigint"),
    ("float", "double"),
    ("decimal(10,2)", "decimal(12,2)"),
}
KEY = StructField("key", IntegerType())
ORIGIN = [StructField("_offset", LongType())]


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def table(**columns: DataType) -> StructType:
    return StructType([KEY, *struct(**columns).fields, *ORIGIN])


def changes(
    old: StructType, new: StructType, evolution: Evolution = Evolution.ALL, **former: list[str]
) -> ColumnChanges:
    return changes_of(old, new, evolution, former, "key")


@pytest.mark.parametrize("new", SCALARS, ids=DataType.simpleString)
@pytest.mark.parametrize("old", SCALARS, ids=DataType.simpleString)
def test_only_types_that_hold_all_values_are_wider(old: DataType, new: DataType) -> None:
    expected = old == new or (old.simpleString(), new.simpleString()) in WIDER
    assert is_wider(old, new) == expected
    assert is_wider(ArrayType(old), ArrayType(new)) == expected
    assert is_wider(MapType(StringType(), old), MapType(StringType(), new)) == expected
    assert is_wider(struct(a=StringType(), b=old), struct(a=StringType(), b=new)) == expected
    # A map's keys stay as they are.
    assert is_wider(MapType(old, StringType()), MapType(new, StringType())) == (old == new)
    for one, other in ((old, ArrayType(new)), (struct(a=old), struct(b=new))):
        assert not is_wider(one, other)


def test_the_paths_of_what_is_wider_are_those_of_its_scalars() -> None:
    def nested(scalar: DataType) -> DataType:
        inner = struct(same=StringType(), wide=scalar)
        return ArrayType(MapType(StringType(), inner))

    assert widened_paths(nested(IntegerType()), nested(LongType()), "c") == [
        ("c.element.value.`wide`", LongType())
    ]
    assert widened_paths(nested(LongType()), nested(LongType()), "c") == []


def test_each_change_is_found() -> None:
    old = table(a=IntegerType(), b=StringType(), c=FloatType(), d=DateType())
    new = table(d=DateType(), a=LongType(), bee=StringType(), cee=DoubleType())
    assert changes(old, new, bee=["x", "b"], cee=["c"]) == ColumnChanges(
        renamed={"b": "bee", "c": "cee"}, widened={"a": LongType(), "cee": DoubleType()}
    )
    assert changes(old, table(d=DateType())) == ColumnChanges(dropped=("a", "b", "c"))
    added = StructType([*old.fields, StructField("e", DateType())])
    assert changes(old, added) == ColumnChanges(added=("e",))
    assert changes(old, old) == ColumnChanges()


def test_a_former_name_that_is_still_used_is_not_renamed() -> None:
    old, new = table(a=DateType()), table(a=DateType(), b=DateType())
    assert changes(old, new, b=["a"]) == ColumnChanges(added=("b",))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (table(a=LongType()), table(a=IntegerType()), "column a is bigint in the table and int in"),
        (table(a=LongType()), table(a=StringType()), "column a is bigint in the table and string"),
        (table(a=DateType()), table(A=DateType()), "column A is missing in the table and date in"),
        (table(), StructType([KEY]), "column _offset is bigint in the table and missing"),
        (table(), StructType(ORIGIN), "column key is int in the table and missing"),
        (StructType(ORIGIN), table(), "column key is missing in the table and int in"),
        (
            table(a=DateType()),
            table(b=DateType()),
            "column a is gone and b is new: if that is its new name, say so by --renamed a=b",
        ),
        (
            table(_unparsed=StringType()),
            table(),
            "column _unparsed is string in the table and miss",
        ),
        (
            table(x=DateType(), y=DateType()),
            table(c=DateType()),
            "columns x and y would get one name",
        ),
    ],
)
@pytest.mark.parametrize("evolution", Evolution)
def test_some_changes_are_never_made(
    old: StructType, new: StructType, says: str, evolution: Evolution
) -> None:
    with pytest.raises(TableRefused, match=rf"the schema does not fit the table: {says}"):
        changes(old, new, evolution, c=["x", "y"])


def test_others_need_to_be_allowed() -> None:
    old = table(a=IntegerType())
    altered = [table(a=LongType()), table(), table(b=IntegerType())]
    for new in altered:
        for evolution in (Evolution.STRICT, Evolution.ADD):
            with pytest.raises(
                TableRefused, match=r"column a is int in the .* --evolution all cha"
            ):
                changes(old, new, evolution, b=["a"])
    added = table(a=IntegerType(), b=IntegerType())
    with pytest.raises(TableRefused, match=r"column b is missing in the .* --evolution add adds"):
        changes(old, added, Evolution.STRICT)
    assert changes(old, added, Evolution.ADD).added == ("b",)
