"""The simplest Produce requests and batches, which are most of the small ones, read by compiled code.

A request is *plain* if its version is at least 5 and it has one batch for one partition, acks=1 or
acks=all, an ASCII client id, no transactional id and no tagged field. A batch is plain if it is valid,
not compressed, of no transaction, and needs no change before it is appended. What is not plain may be
valid all the same: `protocol/wire/request.py` and `storage/batches/validate.py` are the specification,
and read it.
"""

from typing import Any

from typing_extensions import Buffer

class PlainProduce:
    """A plain request."""

    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def acks(self) -> int: ...
    @property
    def topic(self) -> bytes:
        """Its name as UTF-8, not checked; from version 13 on the 16 bytes of its id."""

    @property
    def partition(self) -> int: ...
    @property
    def records_start(self) -> int:
        """Where the batch begins in the frame."""

    @property
    def records_end(self) -> int:
        """Where it ends."""

def read_plain_produce(frame: Buffer) -> PlainProduce | None:
    """Returns the request in a frame (without the frame's size); None if it is not plain."""

def check_plain_batch(
    batch: Buffer, *, keyed: bool, timestamp_from: int, timestamp_to: int
) -> dict[str, Any] | None:
    """Returns the fields of `BatchHeader`; None if the batch is not plain.

    Args:
        keyed: whether every record needs a key.
        timestamp_from, timestamp_to: the smallest and the largest timestamp of a record, except -1.
    """
