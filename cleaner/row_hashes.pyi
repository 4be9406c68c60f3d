"""The hashes of the table digest (`cleaner/table_digest.h`) for columns of records in Arrow's layout.

    columns = BytesColumn(...), ...           views of memory that others own
    hash_rows(offsets, timestamps, keys, values, headers)

Numbers are int64 in the machine's order. Nothing outside of the buffers is read, whatever they say.
"""

from typing_extensions import Buffer

class BytesColumn:
    """A column of bytes, some of them null: cell i is data[ends[start + i] : ends[start + i + 1]]."""

    def __init__(
        self, *, start: int, count: int, validity: Buffer | None, ends: Buffer, data: Buffer
    ) -> None:
        """
        Args:
            validity: a bit for each cell, the lowest first, from bit `start` on; None: no nulls.

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
    """Hash each row: four columns of int64, one behind the other.

    They are the high and the low half of the content hashes, then those of the row hashes.

    Args:
        timestamps: in milliseconds.

    Raises:
        ValueError: the columns differ in length, or a cell lies outside of its data.
    """
