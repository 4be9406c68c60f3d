"""The simplest Fetch requests, which are those of consumers of one partition, read by compiled code.

A request is *plain* if its version is at least 5 and a consumer asks for one partition, without a
session (its id is 0, its epoch 0 or -1), with an ASCII client id and rack, no tagged field and no
forgotten topic, and does not say the epoch of its last record or where its log starts. What is not plain
may be valid as well: `protocol/wire/request.py` is the specification, and reads it.
"""

from typing_extensions import Buffer

class PlainFetch:
    """A plain request."""

    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def max_wait_ms(self) -> int: ...
    @property
    def min_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def isolation_level(self) -> int: ...
    @property
    def topic(self) -> bytes:
        """Its name as UTF-8, not checked; from version 13 on the 16 bytes of its id."""

    @property
    def partition(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int:
        """-1 if the client does not say it."""

    @property
    def fetch_offset(self) -> int: ...
    @property
    def partition_max_bytes(self) -> int: ...

def read_plain_fetch(frame: Buffer) -> PlainFetch | None:
    """Returns the request in a frame (without the frame's size); None if it is not plain."""
