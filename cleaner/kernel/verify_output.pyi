"""Reads the synced output of a pass and summarizes it; compiled, runs without the GIL.

    reader = OutputReader(rebuilt=account.rebuilt, batches=account.batches, ...)
    for each segment of the group, in order:
        reader.start_segment(row.base_offset)
        reader.feed(chunk) ...              chunks of at least 1 MiB
        reader.segment                      to compare with the manifest row
    reader.found                            to compare with the filter's account

Of a copied batch the CRC is verified and the header read. A rebuilt batch is inflated, and each of its
records is read.
"""

from typing_extensions import Buffer

from cleaner.rules.step import OutputFound, ReadStep, SegmentSummary

def sum_keys(entries: Buffer, versions: Buffer, *, base_offset: int) -> int:
    """Returns the sum of the keys of a sidecar block's entries (`digest.h`), modulo 2^64.

    Args:
        versions: those of the entries; empty if they have none.

    Raises:
        ValueError: one of them has a different number of entries.
    """

class OutputReader:
    """Reads the cleaned segments of one group."""

    def __init__(self, *, rebuilt: bytes, batches: int, decompressed_bytes_max: int) -> None:
        """
        Args:
            rebuilt: which batches were rebuilt, see `GroupAccount.rebuilt`.
            batches: the number of batches; more are an error.
            decompressed_bytes_max: the maximum size of one batch's records after decompression.

        Raises:
            ValueError: `rebuilt` has fewer bits than `batches`.
        """

    def start_segment(self, base_offset: int) -> None:
        """Start the next segment; batches below `base_offset` are an error."""

    def feed(self, chunk: Buffer, *, position: int = 0) -> ReadStep:
        """Read the complete batches of `chunk`, which begins at a batch.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch: a length, CRC, codec or record is damaged, offsets do not increase, or there
                are more batches than expected.
            DecompressionTooLarge: a batch inflates beyond `decompressed_bytes_max`.
        """

    @property
    def segment(self) -> SegmentSummary:
        """The content of the segment so far; tombstones and delete horizon only of rebuilt batches."""

    @property
    def found(self) -> OutputFound:
        """The content of the group read so far."""
