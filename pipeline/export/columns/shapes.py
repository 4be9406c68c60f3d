"""Builds the columns of a table from decoded objects, column by column.

A shape says where the objects have the value of each column, and what it is in the table. An object may
have a value that the column cannot hold, such as a number with too many digits: then the rows are built
one by one, to find which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import pyarrow as pa

MISFITS = (pa.ArrowException, ValueError, TypeError, ArithmeticError, RecursionError)
"""What building a column raises for a value that does not fit."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without columns inside."""

    type: pa.DataType
    convert: Callable[[Any], Any] | None = None
    """Makes a value of the column from what an object has. Raises one of MISFITS."""
    usual: Callable[[Sequence[Any]], pa.Array] | None = None
    """Makes the column at once if all values have their usual form; otherwise raises one of MISFITS."""


@dataclass(frozen=True, slots=True)
class Struct:
    """Columns inside a column; in an object each is found by its getter."""

    fields: tuple[tuple[str, Callable[[Any], Any], Shape], ...]

    @property
    def type(self) -> pa.StructType:
        return pa.struct([pa.field(name, shape.type) for name, _, shape in self.fields])


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of values."""

    inner: Shape

    @property
    def type(self) -> pa.DataType:
        return pa.list_(self.inner.type)


@dataclass(frozen=True, slots=True)
class Map:
    """Values by text; a dict in an object."""

    inner: Shape

    @property
    def type(self) -> pa.DataType:
        return pa.map_(pa.string(), self.inner.type)


Shape: TypeAlias = Leaf | Struct | Array | Map


def columns_of(objects: Sequence[Any], shape: Struct) -> tuple[pa.StructArray, list[int]]:
    """Returns a row for each object, null for None, and the rows whose values do not fit: null, too."""
    try:
        return array_of(objects, shape), []
    except MISFITS:
        bad = [row for row, each in enumerate(objects) if not _fits(each, shape)]
    if not bad:
        # Together they do not fit into one array: the caller's batch is too large.
        return array_of(objects, shape), bad
    kept = list(objects)
    for row in bad:
        kept[row] = None
    return array_of(kept, shape), bad


def _fits(value: Any, shape: Struct) -> bool:
    try:
        array_of([value], shape)
    except MISFITS:
        return False
    return True


def array_of(values: Sequence[Any], shape: Shape) -> pa.Array:
    """Returns values as a column. Raises one of MISFITS."""
    match shape:
        case Leaf():
            return _leaf(values, shape)
        case Struct():
            return _struct(values, shape)
        case Array():
            inner = [each for value in values if value is not None for each in value]
            return pa.ListArray.from_arrays(_offsets(values), array_of(inner, shape.inner))
        case Map():
            present = [value for value in values if value is not None]
            keys = pa.array([key for value in present for key in value], pa.string())
            items = [each for value in present for each in value.values()]
            return pa.MapArray.from_arrays(_offsets(values), keys, array_of(items, shape.inner))


def _leaf(values: Sequence[Any], leaf: Leaf) -> pa.Array:
    convert = leaf.convert
    if convert is None:
        return pa.array(values, leaf.type)
    if leaf.usual is not None:
        try:
            return leaf.usual(values)
        except MISFITS:
            pass
    return pa.array([None if each is None else convert(each) for each in values], leaf.type)


def _struct(values: Sequence[Any], shape: Struct) -> pa.StructArray:
    is_null = [value is None for value in values]
    if not shape.fields:
        return pa.array([None if each else {} for each in is_null], shape.type)
    if True in is_null:
        columns = [
            array_of([None if value is None else get(value) for value in values], inner)
            for _, get, inner in shape.fields
        ]
    else:
        columns = [array_of(list(map(get, values)), inner) for _, get, inner in shape.fields]
    return pa.StructArray.from_arrays(
        columns, fields=list(shape.type), mask=pa.array(is_null, pa.bool_())
    )


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Returns where each value begins in all of them, and the end; null for None."""
    ends = list(accumulate((0 if value is None else len(value) for value in values), initial=0))
    starts = [None if value is None else at for value, at in zip(values, ends, strict=False)]
    return pa.array([*starts, ends[-1]], pa.int32())
