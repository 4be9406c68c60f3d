"""Columns are built from objects, and a value that does not fit makes its own row null."""

from __future__ import annotations

from operator import itemgetter

import pyarrow as pa

from pipeline.export.columns.shapes import Array, Leaf, Map, Struct, columns_of

INNER = Struct((("x", itemgetter("x"), Leaf(pa.int32())),))
SHAPE = Struct(
    (
        ("n", itemgetter("n"), Leaf(pa.int8())),
        ("l", itemgetter("l"), Array(Array(INNER))),
        ("m", itemgetter("m"), Map(Leaf(pa.string()))),
    )
)


def row(n: int | None, rows: object = None, by_name: object = None) -> dict[str, object]:
    return {"n": n, "l": rows, "m": by_name}


def test_columns_hold_what_objects_hold() -> None:
    objects = [
        row(1, [[{"x": 1}, None], None, []], {"a": "b", "c": None}),
        None,
        row(None),
        row(2, [], {}),
    ]

    found, bad = columns_of(objects, SHAPE)

    assert bad == []
    assert found.type == SHAPE.type
    assert found.to_pylist() == [
        {"n": 1, "l": [[{"x": 1}, None], None, []], "m": [("a", "b"), ("c", None)]},
        None,
        {"n": None, "l": None, "m": None},
        {"n": 2, "l": [], "m": []},
    ]
    found.validate(full=True)


def test_a_value_that_does_not_fit_makes_its_row_null_and_no_other() -> None:
    objects = [row(1), row(128), None, row(2, [[{"x": "text"}]]), row(3, None, {"a": "\ud800"})]

    found, bad = columns_of(objects, SHAPE)

    assert bad == [1, 3, 4]
    assert [each is None for each in found.to_pylist()] == [False, True, True, True, True]


def test_no_objects_are_no_rows() -> None:
    found, bad = columns_of([], SHAPE)
    assert (len(found), bad) == (0, [])
    found.validate(full=True)


def test_objects_without_fields_are_rows() -> None:
    found, _ = columns_of([{}, None], Struct(()))
    assert found.to_pylist() == [{}, None]
