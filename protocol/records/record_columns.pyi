"""Records of whole batches as columns, in buffers with Apache Arrow's layout.

It checks a batch as `protocol.records.batch_scan.scan_batches` does and against the batch before it. It
skips batches that are not requested (by offset or time, or because they were aborted) by their headers,
without inflating them, and makes no object per record. Markers have rows only on request.

    column       buffers
    key, value   validity bitmap, n + 1 offsets (int32), bytes
    headers      validity bitmap (null: it has none), n + 1 offsets (int32) into the two columns
                 of header names (offsets, bytes) and header values (as key and value)
    offset       int64
    timestamp    int64, microseconds since the epoch, as Spark counts
    type         int32: 0 the producer's time, 1 the broker's

All in native byte order, validity with the least significant bit first.
"""

from collections.abc import Sequence

from typing_extensions import Buffer

class ColumnBuffer:
    """Owned bytes, read-only through the buffer protocol."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class BinaryColumn:
    """A column of byte strings and nulls."""

    @property
    def validity(self) -> ColumnBuffer: ...
    @property
    def offsets(self) -> ColumnBuffer: ...
    @property
    def data(self) -> ColumnBuffer: ...
    @property
    def null_count(self) -> int: ...
    def __len__(self) -> int: ...

class Columns:
    """The rows of a `take`; a column that was not requested is None."""

    @property
    def offset(self) -> ColumnBuffer: ...
    @property
    def timestamp(self) -> ColumnBuffer: ...
    @property
    def timestamp_type(self) -> ColumnBuffer: ...
    @property
    def key(self) -> BinaryColumn | None: ...
    @property
    def value(self) -> BinaryColumn | None: ...
    @property
    def headers_validity(self) -> ColumnBuffer | None: ...
    @property
    def headers_offsets(self) -> ColumnBuffer | None: ...
    @property
    def headers_null_count(self) -> int: ...
    @property
    def header_names(self) -> BinaryColumn | None: ...
    @property
    def header_values(self) -> BinaryColumn | None: ...
    def __len__(self) -> int:
        """Returns the number of records."""

class RecordColumns:
    """Builds columns from batches. One thread at a time."""

    def __init__(
        self,
        *,
        first_offset: int,
        end_offset: int,
        first_timestamp: int = ...,
        end_timestamp: int = ...,
        aborted: Sequence[tuple[int, int, int]] = (),
        with_key: bool = True,
        with_value: bool = True,
        with_headers: bool = False,
        with_markers: bool = False,
        bytes_target: int = ...,
        rows_target: int = ...,
        decompressed_bytes_max: int = ...,
    ) -> None:
        """Begin anywhere at or before the batch that holds `first_offset`.

        Args:
            first_offset, end_offset: records outside [first, end) are left out.
            first_timestamp, end_timestamp: milliseconds; records outside [first, end) are left out.
                A batch is skipped if its header's largest timestamp is older.
            aborted: producer id, first offset and the marker's offset of each transaction whose
                records are left out.
            with_markers: records of control batches also become rows.
            bytes_target, rows_target: `is_full` is true from these sizes on.
            decompressed_bytes_max: the most that one batch may inflate to.
        """

    def begin_file(self, first_offset: int) -> None:
        """Start another file. Records of it that were already met (below `next_offset`), or that are
        below this offset, are left out.
        """

    def feed(self, chunk: Buffer, *, position: int) -> int:
        """Read whole batches of a chunk that begins at `position` of its file. Returns the bytes read.

        It stops when `is_full` or `is_done`, or before a batch that the chunk cuts; `needed_bytes` is
        then that batch's size. Releases the GIL, except where a codec needs it.

        Raises:
            CorruptBatch: a batch is damaged or not valid at its position; the message has the
                position.
        """

    @property
    def needed_bytes(self) -> int:
        """Size of the batch that the last chunk cut; 0 if it cut none."""

    @property
    def next_offset(self) -> int:
        """End offset of the last batch, below which all batches were read; 0 before the first one."""

    @property
    def is_full(self) -> bool:
        """Whether a target is reached: call `take` before feeding more."""

    @property
    def is_done(self) -> bool:
        """Whether a batch at or beyond the end offset was met: no further chunk is needed."""

    def __len__(self) -> int:
        """Returns the number of rows so far."""

    def take(self) -> Columns:
        """Returns the rows so far, and starts again without rows."""
