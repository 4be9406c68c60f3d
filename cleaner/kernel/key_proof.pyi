"""Proves by the keys themselves that records are superseded; compiled, runs without the GIL.

    proof = KeyProof(secret, memory_bytes=..., decompressed_bytes_max=...)
    for each segment with marks:
        proof.begin_marked(marks)
        proof.feed_marked(chunk) ...        remembers the key of each marked record
        if proof.is_full: look for the winners, then proof.clear()
    for each segment that may hold winners:
        proof.begin_winners(start_offset=..., end_offset=...)
        proof.feed_winners(chunk) ...       finds later records of these keys
    proof.unproven                          marked records for which there is none

Keys are compared byte by byte. The hash only finds their place in the table, so two keys with one hash
are two entries. It reads the segments and the marks, and no key sidecar, offset map or kernel code.
The specification is `cleaner/keys/proof.py`.
"""

from collections.abc import Collection

from typing_extensions import Buffer

from cleaner.keys.proof import Unproven
from cleaner.rules.record_verdict import AbortedTransaction
from cleaner.rules.step import ReadStep

class KeyProof:
    """The keys of marked records, each with its last marked record and the last one that outranks it.

    For one thread at a time.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        memory_bytes: int,
        decompressed_bytes_max: int,
        aborted: Collection[AbortedTransaction] = (),
    ) -> None:
        """
        Args:
            secret: 16 random bytes, so that clients cannot fill one place of the table.
            memory_bytes: how much the table and its keys may take. One batch's keys may exceed it.
            decompressed_bytes_max: the maximum size of one batch's records after decompression.
            aborted: the records of these transactions win nothing.

        Raises:
            ValueError: `secret` is not 16 bytes long.
        """

    def begin_marked(self, marks: Buffer) -> None:
        """Start with a segment whose marked records are remembered.

        Args:
            marks: bit i is for its i-th record with a key that is in no control batch.
        """

    def feed_marked(self, chunk: Buffer, *, position: int = 0) -> ReadStep:
        """Read the complete batches of `chunk`, which begins at a batch; stop after one that fills the
        memory.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch: a batch's length, CRC, header or records are damaged.
            DecompressionTooLarge: its records inflate beyond `decompressed_bytes_max`.
            KeysDiffer: the segment has more records than there are bits.
        """

    def begin_winners(
        self,
        *,
        start_offset: int,
        end_offset: int,
        winners: Buffer | None = None,
    ) -> None:
        """Start with a segment whose records in [start_offset, end_offset) may be winners.

        Args:
            winners: like marks: only these records win, and they outrank all others. Without it, a
                record outranks those at lower offsets.
        """

    def feed_winners(self, chunk: Buffer, *, position: int = 0) -> ReadStep:
        """Read the complete batches of `chunk`, to its end. Arguments and errors as `feed_marked`."""

    @property
    def is_full(self) -> bool:
        """Whether the memory is used up, so that winners must be looked for before more is fed."""

    @property
    def marked_records(self) -> int:
        """Records with a key that were fed of the segment of `begin_marked`."""

    @property
    def unproven(self) -> Unproven:
        """What is not proved yet of the keys in the table."""

    def clear(self) -> None:
        """Forget all keys."""

    def __len__(self) -> int:
        """Returns the number of keys in the table."""
