"""Records of whole batches as columns, in the buffers that Apache Arrow lays them out in.

A batch is checked as by `protocol.batch_scan.scan_batches` and against what stands before it; what is
not asked for (by offset or time, or because it was aborted) is passed over by its header, and records
are neither made objects nor inflated in vain. Markers have no rows unless they are asked for.

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
    """Bytes that it owns, for whoever asks for its buffer; read-only."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class BinaryColumn:
    """Byte strings, of which some may be null."""

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
    """What was taken; a column that was not asked for is None."""

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
        """How many records."""

class RecordColumns:
    """The columns in the making. One thread at a time."""

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
                A batch is passed over if its header's largest timestamp is older.
            aborted: producer id, first offset and the marker's offset of each transaction whose
                records are left out.
            with_markers: the records of control batches are rows, too.
            bytes_target, rows_target: `is_full` from here on.
            decompressed_bytes_max: the most that one batch may inflate to.
        """

    def begin_file(self, first_offset: int) -> None:
        """What is fed next is of another file. Of that, records are left out that were met already
        (below `next_offset`), or are below this offset.
        """

    def feed(self, chunk: Buffer, *, position: int) -> int:
        """Take whole batches of a chunk that begins at `position` of its file; the bytes taken.

        It stops where `is_full` or `is_done`, or before a batch that the chunk cuts, whose size
        `needed_bytes` then tells. Releases the GIL, but for what a codec needs it for.

        Raises:
            CorruptBatch: a batch is damaged, or may not stand where it stands; the message has its
                position.
        """

    @property
    def needed_bytes(self) -> int:
        """How large the batch is that the last chunk cut; 0 if it cut none."""

    @property
    def next_offset(self) -> int:
        """Everything below was met: where the last batch ends; 0 before the first one."""

    @property
    def is_full(self) -> bool:
        """Whether there is enough: `take` before more is fed."""

    @property
    def is_done(self) -> bool:
        """Whether a batch at or past the end offset was met: no more is wanted."""

    def __len__(self) -> int:
        """The rows so far."""

    def take(self) -> Columns:
        """Hand over the rows so far, and begin anew."""
