"""A compiled check of a run of batches that another broker sent, without the GIL and without a Python
object per batch.
"""

from typing_extensions import Buffer

from protocol.records.batch_scan import StopReason
from protocol.wire.numbers import Epoch, Offset

class RunScan:
    """The result of `scan_run`. Positions count from the start of its buffer."""

    @property
    def start_position(self) -> int:
        """Position of the first batch that continues the log; the batches before it are in the log."""

    @property
    def end_position(self) -> int:
        """Position after the last batch of the run."""

    @property
    def base_offset(self) -> Offset:
        """The base offset of the first batch; without one, the end of the log."""

    @property
    def end_offset(self) -> Offset:
        """The end of the log after the run."""

    @property
    def last_epoch(self) -> Epoch:
        """The leader epoch of the last batch, the largest of all; without one, that of the log."""

    @property
    def first_gap(self) -> Offset:
        """The first offset from the log's end on that has no record; -1 if every offset has one."""

    @property
    def stop(self) -> StopReason:
        """The reason why the run ends there; TRUNCATED if the buffer ends inside a batch."""

def scan_run(
    records: Buffer, *, end_offset: Offset, last_epoch: Epoch, size_max: int, batches_max: int
) -> RunScan:
    """Check the batches that continue a log, up to the first that is not valid there.

    Valid: whole and valid as in `protocol.records.batch_scan`, at or above the end of the batch before
    it, and of no lower epoch, at most 2^30. Offsets may be missing, and batches may have no records.
    Batches that end at or below the log's end are skipped at the start. The buffer must not change
    meanwhile. Releases the GIL.

    Args:
        end_offset, last_epoch: of the log.
        size_max: bytes of the run; one batch may be larger.
        batches_max: batches of the run, at least 1.
    """
