"""Finds the placeholder that Debezium writes for a value that the database did not send.

It has one of these forms, by the type of the column:

    text          the placeholder; JSON of an hstore with it; the base64 of bytes in JSON; a UUID
    bytes         its bytes
    numbers       an array of its bytes
    others        one of these inside

Source: Debezium, UnchangedToastedPlaceholder.java.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5
from typing import TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags: TypeAlias = npt.NDArray[np.bool_]


class Placeholder:
    """The placeholder of a connector, in all its forms."""

    def __init__(self, text: str) -> None:
        self._text, self._data = text, text.encode()
        # As Java's UUID.nameUUIDFromBytes.
        uuid = UUID(bytes=md5(self._data, usedforsecurity=False).digest(), version=3)
        self._whole = pa.array([b64encode(self._data).decode(), str(uuid)])
        self._numbers = [str(each) for each in self._data]

    def found_in(self, column: pa.Array) -> Flags:
        """Returns which values of a column are the placeholder, or have it inside."""
        kind = column.type
        if pa.types.is_string(kind):
            is_inside = pc.match_substring(column, self._text)
            return _flags(pc.or_(is_inside, pc.is_in(column, value_set=self._whole)))
        if pa.types.is_binary(kind):
            return _flags(pc.equal(column, self._data))
        if pa.types.is_struct(kind):
            inner = np.array([self.found_in(each) for each in column.flatten()], np.bool_)
            return np.asarray(inner.any(axis=0), np.bool_)
        if pa.types.is_map(kind):
            return _any_of(column, self.found_in(column.keys))
        if pa.types.is_list(kind):
            return self._in_lists(column)
        return np.zeros(len(column), np.bool_)

    def _in_lists(self, column: pa.ListArray) -> Flags:
        kind = column.type.value_type
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            lists = column.to_pylist()
            return np.array([_texts(each) == self._numbers for each in lists], np.bool_)
        return _any_of(column, self.found_in(column.values))


def _texts(numbers: list[object] | None) -> list[str] | None:
    return None if numbers is None else [str(each) for each in numbers]


def _flags(found: pa.BooleanArray) -> Flags:
    flags: Flags = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return flags


def _any_of(column: pa.Array, flags: Flags) -> Flags:
    """Returns which lists or maps have a flagged value. The column must not be a slice."""
    lengths = np.diff(column.offsets.to_numpy())
    found = np.zeros(len(column), np.bool_)
    found[np.repeat(np.arange(len(column)), lengths)[flags]] = True
    return found
