"""Finds one record by its offset in stored batches. It looks at no other record's contents.

batch by batch, by their headers, to the first that ends at the offset or above
its CRC, its codec, its records one by one, up to the one at the offset
"""

from typing_extensions import Buffer

from protocol.records.record import Record

def find_record(
    chunk: Buffer, offset: int, *, position: int, decompressed_bytes_max: int
) -> tuple[Record | None, int, int]:
    """Returns the record at an offset, or None, how many bytes are needed to say so, and where from.

    The second number is 0 if it is certain. Otherwise the batch at the third number, counted from the
    start of `chunk`, must be there with so many bytes; all before it end below the offset. A control
    batch has no records here.

    Args:
        chunk: whole batches from one that begins at or below the offset; the last may be cut off.
        position: of the chunk in its file, for errors.

    Raises:
        CorruptBatch: a batch up to the record is damaged, or a record.
        DecompressionTooLarge: the batch inflates to more than `decompressed_bytes_max`.
    """
