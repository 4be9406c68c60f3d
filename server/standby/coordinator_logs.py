"""Turns the copies of the coordinators' partitions into logs of a broker.

A copy is a checkpoint and the log after its end (`partition_copy.py`). A broker must not depend on a
checkpoint: it may remove one at any time, and reads the log. So the log is written: the batches of the
checkpoint, whose records have the offsets of the log, then those of the copy's log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from cleaner.checkpoints.reading import CheckpointReader
from protocol.records.batch_header import read_header, stamp
from protocol.wire.errors import CorruptBatch, ProtocolError
from protocol.wire.numbers import Epoch, Offset
from server.coordination.state_loading import feed_log
from server.standby.partition_copy import PartitionCopy
from storage.batches.batch_run import check_run
from storage.files.errors import CorruptLog, DamagedFile
from storage.files.files import FileSystem
from storage.files.paths import checkpoint_path
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.log.log import PartitionLog
from storage.log.opening import LogOpening, create_log

_log = logging.getLogger("server.standby")

CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=100 << 20)


def write_log(
    fs: FileSystem, copy: PartitionCopy, target: LogIdentity, opening: LogOpening
) -> list[str]:
    """Write the log of a copy into a directory; what an earlier try has left there is removed. Blocks.

    All files are durable when this returns, their directory's name in the topic's too. Of a copy whose
    checkpoint was lost (`is_whole`), or is damaged, only the log after that is there.

    Returns a sentence about what is missing; none if the copy has the whole state.

    Raises:
        StorageError: the disk failed, or the copy's log is damaged.
    """
    partition, start = target.topic_partition, copy.log.log_start_offset
    try:
        _write(fs, copy, target, opening, end=copy.checkpoint_end)
        reason = "" if copy.is_whole else "was lost"
    except (ProtocolError, DamagedFile) as error:
        if copy.checkpoint_end is None:
            raise CorruptLog(copy.log.directory, 0, str(error)) from error
        _write(fs, copy, target, opening, end=None)
        reason = f"is damaged ({error})"
    if not reason:
        return []
    sentence = (
        f"{partition}: its checkpoint {reason}, so the state before offset {start} is missing"
    )
    _log.error("%s", sentence)
    return [sentence]


def _write(
    fs: FileSystem,
    copy: PartitionCopy,
    target: LogIdentity,
    opening: LogOpening,
    *,
    end: Offset | None,
) -> None:
    """Write the copy's checkpoint, which has this end, and its log; None: its log only."""
    fs.remove_tree(target.directory)
    log, now_ms = create_log(fs, target, CONFIG, opening), opening.now_ms
    try:
        log.new_files.make_safe()
        if end is not None:
            path = checkpoint_path(copy.log.directory)
            for piece in _checkpoint_pieces(fs, path, copy.checkpoint_epoch):
                _append(log, piece, now_ms)
            log.appender.advance_end(end, now_ms=now_ms, leader_epoch=copy.checkpoint_epoch)
        feed_log(
            copy.log,
            Offset(end or copy.log.log_start_offset),
            copy.end,
            lambda piece: _append(log, memoryview(piece), now_ms),
        )
        log.appender.advance_end(copy.end, now_ms=now_ms, leader_epoch=copy.last_epoch)
        log.advance_high_watermark(log.sync())
    finally:
        log.close()


def _checkpoint_pieces(fs: FileSystem, path: str, epoch: Epoch) -> Iterator[memoryview]:
    """Yields the batches of a checkpoint, with the epoch of the batch that ended there."""
    with CheckpointReader(fs, path) as reader:
        for piece in reader.pieces():
            batches = bytearray(piece)
            position = 0
            view = memoryview(batches)
            while position < len(batches):
                header = read_header(view, position)
                stamp(view[position:], base_offset=header.base_offset, leader_epoch=epoch)
                position += header.size_bytes
            yield view


def _append(log: PartitionLog, batches: memoryview, now_ms: int) -> int:
    """Append whole batches. Returns the log's end."""
    while len(batches):
        run = check_run(batches, end=log.log_end_offset, last_epoch=log.epochs.latest)
        if run.fault:
            raise CorruptBatch(f"{log.topic_partition}: {run.fault}")
        if not len(run.view):
            break
        log.appender.append_as_follower(run, now_ms=now_ms)
        batches = run.rest
    return log.log_end_offset
