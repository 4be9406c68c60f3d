"""Makes the checkpoint of a coordinator's partition: a pass over the last one and the log after it.

    find    note the last record of each key, the open transactions, and the place where the pass ends
    copy    write the records that still count into `.checkpoint.part`
    then    sync it, rename it over the last checkpoint, sync the directory

The pass reads a frozen view of the log up to its high watermark, takes 24 bytes of memory for each key
of the new part, and holds no lock. If the last checkpoint does not count, the pass reads the whole log.
If the keys do not fit into the memory, the checkpoint ends before the first batch without room; the next
one continues there. A crash leaves the last checkpoint or the new one, and perhaps a part, which the
next pass replaces.

`live_digest` is the same pass without a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import xxhash

from cleaner.checkpoints.reading import PIECE_BYTES, CheckpointReader
from cleaner.checkpoints.validity import objection, place_in
from cleaner.kernel.live_records import LiveRecords
from cleaner.pacing.meter import PassMeter
from cleaner.rules.step import LiveStep
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Epoch, Offset
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile, StorageError
from storage.files.files import File, FileSystem, unlink_if_there
from storage.files.paths import PART, checkpoint_path
from storage.formats.coordinator_checkpoint import (
    CheckpointHeader,
    encode_counts,
    encode_header,
)
from storage.log.cleaning_view import CleanableSegment, CleaningView
from storage.log.log import PartitionLog
from storage.segment.lookup import position_before

KEY_BYTES = 27
"""The memory of a noted key, with the free slots beside it."""
SPARE_KEYS = 65_536
"""Room for records of transactions that the last checkpoint has open, in a map for few keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCheckpoint:
    """A durable checkpoint."""

    end_offset: Offset
    size: int
    records: int
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOrder:
    """What to make a checkpoint of, and how."""

    log: PartitionLog
    view: CleaningView
    """Of the log as if it had rolled, so that it has the active segment."""
    has_commits: bool
    """Whether the log is one of `__consumer_offsets` (see `LiveRecords`)."""
    memory_bytes: int
    """The most memory for keys."""
    is_copy: bool = False
    """Whether the log is a standby's copy (see `objection`). If its checkpoint does not count, nothing
    has the state, so no other checkpoint is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDigest:
    """The digest of the records of which the state at an offset consists."""

    end_offset: Offset
    records: int
    digest: int


def make_checkpoint(order: CheckpointOrder, meter: PassMeter) -> MadeCheckpoint | None:
    """Make a partition's checkpoint in the calling thread. Returns None if there is nothing new.

    Raises:
        CleaningAborted: the meter says so, or the log was truncated or deleted.
        CorruptBatch, UnknownRecord, DecompressionTooLarge: a load could not read the log either.
        DamagedFile: the log is a copy, and its checkpoint does not count.
        StorageError: the disk failed. The last checkpoint is as before.
    """
    with ExitStack() as stack:
        last, found = _found(order, meter, stack)
        return _write(order, last, found, meter)


def live_digest(order: CheckpointOrder, meter: PassMeter) -> LiveDigest:
    """Returns the digest that a checkpoint would have that ends at the view's high watermark.

    If there is no room for all keys, it ends before. Blocks, and raises as `make_checkpoint`.
    """
    with ExitStack() as stack:
        last, live = _found(order, meter, stack)
        for _ in _copies(order, last, live, Offset(live.next_offset), meter):
            pass
        return LiveDigest(
            end_offset=Offset(live.next_offset), records=live.copied, digest=live.digest
        )


def _found(
    order: CheckpointOrder, meter: PassMeter, stack: ExitStack
) -> tuple[CheckpointReader | None, LiveRecords]:
    """Returns the last checkpoint, if it counts, and the noted records."""
    for each in order.view.segments:
        # A cleaning pass may swap segments meanwhile: both readings must see the same records.
        each.segment.files.pin()
        stack.callback(each.segment.files.unpin)
    last = _last_checkpoint(order, stack)
    found = None if last is None else _find(order, last, meter)
    if found is not None:
        return last, found
    if order.is_copy and order.view.log_start_offset > 0:
        path = checkpoint_path(order.log.directory)
        raise DamagedFile(path, "it does not count, and the copy has no log before its end")
    found = _find(order, None, meter)
    assert found is not None
    return None, found


def _last_checkpoint(order: CheckpointOrder, stack: ExitStack) -> CheckpointReader | None:
    """Open the partition's checkpoint. Returns None if there is no valid one."""
    log = order.log
    with suppress(MissingFile, DamagedFile, FormatFromTheFuture):
        reader = CheckpointReader(_fs(log), checkpoint_path(log.directory))
        stack.enter_context(reader)
        place = place_in(log, reader.header.end_offset)
        if objection(reader.header, place, is_copy=order.is_copy) is None:
            return reader
    return None


def _find(
    order: CheckpointOrder, last: CheckpointReader | None, meter: PassMeter
) -> LiveRecords | None:
    """Note the records that count. Returns None if the last checkpoint does not count after all."""
    view = order.view
    start = view.log_start_offset if last is None else last.header.end_offset
    keys_max = max(view.high_watermark - start, 0) + SPARE_KEYS
    live = LiveRecords(
        view.hash_key,
        keys_max=min(keys_max, max(order.memory_bytes // KEY_BYTES, SPARE_KEYS)),
        start_offset=start,
        has_commits=order.has_commits,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
    )
    if last is not None:
        try:
            for piece in last.pieces():
                live.find(piece, end_offset=0, in_checkpoint=True)
                meter.read(len(piece))
        except (DamagedFile, CorruptBatch):
            return None
    for _ in _log_steps(order, start, live.find, meter):
        pass
    if last is None or _has_no_gap(live, view.high_watermark):
        return live
    return None


def _has_no_gap(live: LiveRecords, high_watermark: Offset) -> bool:
    reached_end = live.is_full or live.next_offset >= high_watermark
    return live.is_gapless and reached_end


def _write(
    order: CheckpointOrder, last: CheckpointReader | None, live: LiveRecords, meter: PassMeter
) -> MadeCheckpoint | None:
    start = order.view.log_start_offset if last is None else last.header.end_offset
    if live.next_offset <= start:
        return None
    header = CheckpointHeader(
        topic_id=order.log.topic_id,
        partition=order.log.topic_partition.partition,
        start_offset=_state_start(order, last),
        end_offset=Offset(live.next_offset),
        last_epoch=Epoch(live.last_epoch),
        last_crc=live.last_crc,
    )
    fs, path = _fs(order.log), checkpoint_path(order.log.directory)
    part = path + PART
    unlink_if_there(fs, part)
    file = fs.open(part, create=True)
    try:
        _fill(file, header, _copies(order, last, live, header.end_offset, meter), live, meter)
        size = file.size
    except BaseException:
        file.close()
        with suppress(StorageError):
            fs.unlink(part)
        raise
    file.close()
    fs.rename(part, path)
    fs.sync_directory(path.rpartition("/")[0])
    return MadeCheckpoint(
        end_offset=header.end_offset, size=size, records=live.copied, digest=live.digest
    )


def _state_start(order: CheckpointOrder, last: CheckpointReader | None) -> Offset:
    """Returns the start of the log whose records the state consists of: a copy's starts later."""
    if order.is_copy and last is not None:
        return last.header.start_offset
    return order.view.log_start_offset


def _fill(
    file: File,
    header: CheckpointHeader,
    copies: Iterator[bytes],
    live: LiveRecords,
    meter: PassMeter,
) -> None:
    """Write and sync a whole file."""
    checksum = xxhash.xxh3_128()

    def write(data: bytes) -> None:
        checksum.update(data)
        file.append((data,))
        meter.wrote(len(data))

    write(encode_header(header))
    for data in copies:
        if data:
            write(data)
    write(encode_counts(live.copied, live.digest))
    file.append((checksum.digest(),))
    file.sync()
    # The log may have been truncated since the view was taken.
    meter.check()


def _copies(
    order: CheckpointOrder,
    last: CheckpointReader | None,
    live: LiveRecords,
    end_offset: Offset,
    meter: PassMeter,
) -> Iterator[bytes]:
    """Yields the batches of the new checkpoint."""
    start = order.view.log_start_offset
    if last is not None:
        start = last.header.end_offset
        for piece in last.pieces():
            meter.read(len(piece))
            yield live.copy(piece, end_offset=0, in_checkpoint=True).output
    yield from _log_steps(order, start, live.copy, meter, end_offset=end_offset)
    yield live.finish()


def _log_steps(
    order: CheckpointOrder,
    start: Offset,
    step: Callable[..., LiveStep],
    meter: PassMeter,
    *,
    end_offset: Offset | None = None,
) -> Iterator[bytes]:
    """Feed the view's batches from `start` on, by default up to the high watermark, and yield what
    `step` returns."""
    end = order.view.high_watermark if end_offset is None else end_offset
    for segment in order.view.segments:
        if segment.row.end_offset <= start or segment.row.base_offset >= end:
            continue
        position = 0
        if segment.row.base_offset < start:
            position = position_before(segment.segment, start)
        for each in _steps(segment, position, lambda data: step(data, end_offset=end), meter):
            yield each.output
            if each.is_end:
                return


def _steps(
    segment: CleanableSegment,
    position: int,
    step: Callable[[bytes], LiveStep],
    meter: PassMeter,
) -> Iterator[LiveStep]:
    """Feed a segment from `position` on, in pieces that begin at a batch."""
    end, wanted = segment.row.size, PIECE_BYTES
    while position < end:
        data = segment.read_at(position, min(wanted, end - position))
        its = step(data)
        meter.read(its.consumed_bytes)
        yield its
        position += its.consumed_bytes
        if its.needed_bytes > end - position or len(data) == 0:
            raise CorruptBatch(f"{segment.row}: it ends inside a batch, at byte {position}")
        wanted = max(PIECE_BYTES, its.needed_bytes)


def _fs(log: PartitionLog) -> FileSystem:
    return log.segments[-1].fs
