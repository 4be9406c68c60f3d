"""Reads what a pass wrote, once it is synced, and says what it holds: compiled, without the GIL.

    reader = OutputReader(rebuilt=account.rebuilt, batches=account.batches, ...)
    for each segment of the group, in order:
        reader.start_segment(row.base_offset)
        reader.feed(chunk) ...              chunks of at least 1 MiB
        reader.segment                      to be compared with the manifest's row
    reader.found                            to be compared with the filter's account

Of a batch that was copied, its CRC is compared and its header read. A batch that was written anew is
inflated and each of its records read.
"""

from typing_extensions import Buffer

from cleaner.step import OutputFound, ReadStep, SegmentSummary

class OutputReader:
    """Reads the cleaned segments of one group."""

    def __init__(self, *, rebuilt: bytes, batches: int, decompressed_bytes_max: int) -> None:
        """
        Args:
            rebuilt: which batches were written anew, as `GroupAccount.rebuilt`.
            batches: how many there are; one more is an error.
            decompressed_bytes_max: the most that one batch's records may inflate to.

        Raises:
            ValueError: `rebuilt` is too short for so many batches.
        """

    def start_segment(self, base_offset: int) -> None:
        """Go on with the next segment; what is below `base_offset` does not belong into it."""

    def feed(self, chunk: Buffer, *, position: int = 0) -> ReadStep:
        """Read the whole batches of `chunk`, which begins at a batch.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch: a length, CRC, codec or record is damaged, offsets do not grow, or there are
                more batches than were written.
            DecompressionTooLarge: a batch inflates beyond `decompressed_bytes_max`.
        """

    @property
    def segment(self) -> SegmentSummary:
        """What the segment holds, as far as it was read; its tombstones and the least horizon that
        something waits for are those of the batches that were written anew."""

    @property
    def found(self) -> OutputFound:
        """What was read of the group."""
