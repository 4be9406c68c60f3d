"""Compiled scans over whole record batches, without the GIL if they take long.

A batch is *whole and valid* here if all its bytes are present, its magic is 2, its length is at
least a header's, its CRC is right, its counts are not negative and its record count is at most its
number of offsets. A scan does not parse its records. See `record_format.h` for the layout.
"""

from enum import IntEnum

from typing_extensions import Buffer

from protocol.wire.numbers import Epoch, Offset, ProducerId

def crc32c(data: Buffer, value: int = 0) -> int:
    """Returns the CRC-32C (Castagnoli) of `data`, continued from `value`, the CRC of the bytes
    before it. Releases the GIL above 1 KiB.
    """

def _crc32c_portable(data: Buffer, value: int = 0) -> int:
    """Returns the same without CRC instructions; lets tests run the fallback on any machine."""

class StopReason(IntEnum):
    """The reason why a scan stopped."""

    END = 0
    """It reached the given end; every byte belongs to a valid batch."""
    TRUNCATED = 1
    """The last batch, or its header, continues beyond the end."""
    BAD_MAGIC = 2
    BAD_LENGTH = 3
    BAD_CRC = 4
    BAD_HEADER = 5
    """The CRC is right but the header contradicts itself: its writer had a bug."""
    OUT_OF_ORDER = 6
    """Its offsets, or its leader epoch, cannot follow those before it; `batch_tally` and `batch_run`
    check that."""
    FULL = 7
    """The segment, or the run, has no space for it; only for tallies and runs with bounds."""

class ScannedBatch:
    """The header of a valid batch; the names are those of `BatchHeader`."""

    @property
    def position(self) -> int:
        """Position of the batch in the buffer."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def base_offset(self) -> Offset: ...
    @property
    def last_offset(self) -> Offset: ...
    @property
    def next_offset(self) -> Offset: ...
    @property
    def leader_epoch(self) -> Epoch: ...
    @property
    def attributes(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> ProducerId: ...
    @property
    def producer_epoch(self) -> Epoch: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def record_count(self) -> int: ...

class BatchScan:
    """The result of `scan_batches`."""

    @property
    def batches(self) -> list[ScannedBatch]: ...
    @property
    def end_position(self) -> int:
        """Position after the last valid batch: the first byte that is not part of one, or the end."""

    @property
    def stop(self) -> StopReason: ...
    @property
    def detail(self) -> str:
        """Describes to an operator what is wrong, and where."""

def scan_batches(buffer: Buffer, position: int = 0, end: int | None = None) -> BatchScan:
    """Walk the batches in `buffer[position:end]` up to the first that is not whole and valid.

    Positions in the result count from the start of `buffer`. The buffer must not change meanwhile.

    Raises:
        ValueError: not 0 <= position <= end <= len(buffer).
    """
