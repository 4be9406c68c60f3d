"""Computes the table digest's hashes (`cleaner/kernel/table_digest.h`) for columns in Arrow's layout.

    columns = BytesColumn(...), ...           views of memory owned by the caller
    hash_rows(offsets, timestamps, keys, values, headers)

Numbers are int64 in native byte order. Nothing outside of the buffers is read, even if the offsets in
them are wrong.
"""

from typing_extensions import Buffer

class BytesColumn:
    """A column of bytes or nulls: cell i is data[ends[start + i] : ends[start + i + 1]]."""

    def __init__(
        self, *, start: int, count: int, validity: Buffer | None, ends: Buffer, data: Buffer
    ) -> None:
        """
        Args:
            validity: a bit for each cell, lowest bit first, starting at bit `start`; None: no nulls.

        Raises:
            ValueError: a buffer is too small for `count` cells.
        """

class HeadersColumn:
    """The headers of rows: those of row i are the cells [firsts[i], firsts[i] + counts[i])."""

    def __init__(
        self, *, firsts: Buffer, counts: Buffer, keys: BytesColumn, values: BytesColumn
    ) -> None: ...

def hash_rows(
    offsets: Buffer,
    timestamps: Buffer,
    keys: BytesColumn,
    values: BytesColumn,
    headers: HeadersColumn | None = None,
) -> bytearray:
    """Hash each row. Returns four columns of int64, one after the other.

    They are the high and the low halves of the content hashes, then those of the row hashes.

    Args:
        timestamps: in milliseconds.

    Raises:
        ValueError: the columns differ in length, or a cell is outside of its data.
    """
