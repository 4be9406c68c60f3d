"""Finds one record by its offset in stored batches. It looks at no other record's contents.

batch by batch, by their headers, to the first that ends at the offset or above
its CRC, its codec, its records one by one, up to the one at the offset
"""

from typing_extensions import Buffer

from protocol.records.record import Record

def find_record(
    chunk: Buffer, offset: int, *, position: int, decompressed_bytes_max: int
) -> tuple[Record | None, int]:
    """Returns the record at an offset, None if there is none, and 0; or None, and how many bytes `chunk`
    must have to say so.

    A control batch has no records here.

    Args:
        chunk: whole batches from one that begins at or below the offset; the last may be cut off.
        position: of the chunk in its file, for errors.

    Raises:
        CorruptBatch: a batch up to the record is damaged, or a record.
        DecompressionTooLarge: the batch inflates to more than `decompressed_bytes_max`.
    """
