"""Finds the records of which a coordinator's state consists, and copies them.

The records are read twice: `find` notes the last record of each key, `copy` writes those that still
count. A copied record keeps key, value and offset. Records of committed transactions become plain ones;
those of open transactions keep their producer. Tombstones, aborted records, markers and records that a
load ignores are left out. So a load of the copies gives exactly the state that a load of the originals
gives (`OffsetScan`), and the copies depend on that state only.

Both methods release the GIL, except for compressed batches and records of transactions.
"""

from typing_extensions import Buffer

from cleaner.rules.step import LiveStep

class LiveRecords:
    """One selection. `find` all pieces in offset order, then `copy` the same pieces in the same order,
    then `finish`."""

    def __init__(
        self,
        hash_key: bytes,
        *,
        keys_max: int,
        start_offset: int,
        has_commits: bool,
        decompressed_bytes_max: int,
    ) -> None:
        """
        Args:
            hash_key: a secret of 16 bytes, so that clients cannot craft two keys that count as one.
            keys_max: the most keys to note, 24 bytes each.
            start_offset: where the log is read from; batches below are skipped in it.
            has_commits: whether the records are those of `__consumer_offsets`, whose transactions and
                malformed records a load treats by the rules of `OffsetScan`. Otherwise the last record
                of each key counts, whether in a transaction or not.

        Raises:
            ValueError: `hash_key` is not 16 bytes long.
            MemoryError: the memory for the keys cannot be mapped.
        """

    def find(self, piece: Buffer, *, end_offset: int, in_checkpoint: bool = False) -> LiveStep:
        """Note the records of a piece.

        Args:
            end_offset: batches from there on are not read.
            in_checkpoint: whether the piece is of the previous checkpoint.

        Raises:
            CorruptBatch, UnsupportedCodec, DecompressionTooLarge: a batch is not sound.
            UnknownRecord: a later release has written a commit.
        """

    def copy(self, piece: Buffer, *, end_offset: int, in_checkpoint: bool = False) -> LiveStep:
        """Returns a step with the finished batches of the copy. Arguments and errors as `find`."""

    def finish(self) -> bytes:
        """Returns the last batch of the copy; empty if there is none."""

    @property
    def next_offset(self) -> int:
        """The offset after the last batch of the log that `find` took; at first `start_offset`."""

    @property
    def is_gapless(self) -> bool:
        """Whether every offset of the log from `start_offset` on had its record so far."""

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch of the log that `find` took; -1 before the first."""

    @property
    def last_crc(self) -> int:
        """The CRC of that batch; 0 before the first."""

    @property
    def is_full(self) -> bool:
        """Whether `find` stopped before a batch for whose keys there is no room."""

    @property
    def copied(self) -> int:
        """The number of records copied."""

    @property
    def digest(self) -> int:
        """The set digest of the records copied (`row_sum.h`)."""

class RecordSum:
    """The set digest of records, as `OffsetScan` computes it: for readers that keep no state."""

    def __init__(self, *, decompressed_bytes_max: int) -> None: ...
    def feed(self, batches: Buffer) -> None:
        """Add the records of whole batches. Raises as `LiveRecords.find`."""

    @property
    def digest(self) -> int: ...
    @property
    def records(self) -> int: ...
