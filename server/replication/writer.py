"""Writes what a source sent into mirrors' logs, and moves their ends and starts as the source's.

The only writer of a mirror's log, and of the new copy of a resync. Every method reports a failure to the
mirror: one that fails stops no other. While a method holds `Mirror.writing`, no other one writes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from protocol.records.batch_header import read_header
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import CorruptBatch, UnsupportedMagic
from protocol.wire.numbers import Epoch, Offset
from server.durability.group_commit import GroupCommit
from server.replication.aside_logs import AsideLog, aside_logs
from server.replication.findings import Verdict
from server.replication.mirror import Mirror
from server.replication.requests import Fetched
from server.replication.resync import goes_aside
from server.replication.state_table import Event, Guard
from server.replication.target import Target
from server.runtime.executors import Executor
from server.runtime.tasks import to_its_end
from server.runtime.turns import Pace, Turns
from storage.batches.batch_run import BatchRun, check_run, takes_long
from storage.files.errors import CutRefused, NoSpace, StorageError
from storage.files.files import FileSystem
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.replication")
BEGINNING = Offset(0)


@loop_thread
class MirrorWriter:
    """Appends to, cuts and skips in mirrors' logs; begins, swaps and drops their new copies."""

    __slots__ = (
        "_directories",
        "_disk",
        "_files",
        "_group_commit",
        "_make_files",
        "_now_ms",
        "_turns",
    )

    def __init__(
        self,
        group_commit: GroupCommit,
        make_files: Callable[[PartitionLog], Awaitable[None]],
        directories: Sequence[LogDirectory],
        *,
        files: FileSystem,
        disk: Executor,
        turns: Turns,
        now_ms: Callable[[], int],
    ) -> None:
        # Constant after construction
        self._group_commit = group_commit
        self._make_files = make_files
        self._directories = {each.directory_id: each for each in directories}
        self._files = files
        self._disk = disk
        self._turns = turns
        self._now_ms = now_ms

    async def append(self, mirror: Mirror, target: Target, fetched: Fetched) -> None:
        """Append the batches as they are to the log that was asked for, then follow the source's start
        and end."""
        try:
            async with mirror.writing:
                await self._append_batches(mirror, target, fetched)
                await self._follow_end(mirror, target, fetched)
                await self._follow_start(mirror, target, fetched.answer.start)
        except CorruptBatch as error:
            mirror.answered(Verdict(guard=Guard.ERROR, reason=f"the source sent: {error}"))
        except StorageError as error:
            self._failed(mirror, error)

    async def remember_source(self, mirror: Mirror, name: UUID) -> None:
        """Remember durably that the source had every record of the mirror's log: a later answer may no
        longer show it, because the source has deleted them."""
        target = mirror.own
        async with mirror.writing:
            # Also if the copier is cancelled: nothing else may commit meanwhile.
            await to_its_end(self._remember_source(mirror, target, name))

    async def _remember_source(self, mirror: Mirror, target: Target, name: UUID) -> None:
        try:
            await self._make_files(target.log)
            if mirror.asks_for(target):
                await self._disk.run(target.log.remember_source, name)
        except NoSpace as error:
            # The next answer shows it once more.
            _log.warning("%s: %s", target.log.topic_partition, error)
        except StorageError as error:
            self._failed(mirror, error)

    async def cut(self, mirror: Mirror, verdict: Verdict) -> None:
        """Cut the log where it diverges. The mirror then compares both logs again."""
        target = mirror.own
        async with mirror.writing:
            # Also if the copier is cancelled, because its broker leads nothing now: otherwise the
            # mirror would wait for this cut for ever.
            await to_its_end(self._cut(mirror, target, verdict))

    async def _cut(self, mirror: Mirror, target: Target, verdict: Verdict) -> None:
        if mirror.own is not target:
            # A resync has ended since the verdict, which is about the log before.
            mirror.happened(Event.CUT)
            return
        log, offset = mirror.log, verdict.offset
        assert offset is not None, "the verdict of a cut has its offset"
        before = log.log_end_offset
        try:
            # No sync may run meanwhile: its result would cover bytes that are gone.
            await self._group_commit.rest(log)
            await self._disk.run(log.truncate_to, offset, keeps_keys=True)
        except CutRefused as error:
            # A pass has swapped segments since the verdict: the next answer is judged by its end.
            _log.warning("%s", error)
            mirror.happened(Event.CUT)
            return
        except StorageError as error:
            if isinstance(error, NoSpace):
                # Then it is checked once more after the pause, and not cut by this verdict.
                mirror.happened(Event.CUT)
            self._failed(mirror, error)
            return
        mirror.cut_records += before - log.log_end_offset
        _log.warning(
            "%s: cut off offsets %d to %d, because %s",
            log.topic_partition,
            log.log_end_offset,
            before,
            verdict.reason,
        )
        self._group_commit.abandon(log)
        mirror.happened(Event.CUT)

    async def skip(self, mirror: Mirror, verdict: Verdict) -> None:
        """Let the log start over where the source's starts, which has deleted records before they were
        copied.

        The producers' last sequences and the markers of their transactions may have been among these, so
        the log forgets its producers: it would refuse the next batch of one that it knows too little of.

        Source: Apache Kafka, ReplicaFetcherThread.scala (`truncateFullyAndStartAt`).
        """
        target = mirror.own
        async with mirror.writing:
            await to_its_end(self._skip(mirror, target, verdict))

    async def _skip(self, mirror: Mirror, target: Target, verdict: Verdict) -> None:
        log, offset = target.log, verdict.offset
        assert offset is not None, "the verdict of a skip has its offset"
        try:
            await self._make_files(log)
            await self._group_commit.rest(log)
            if not mirror.asks_for(target) or log.log_end_offset >= offset:
                # It was promoted, paused or resynced since the verdict, or filled by another copier. The
                # next answer is judged once more.
                return
            skipped = offset - log.log_end_offset
            # A full disk allows this, and it makes room for the rest.
            deleted = await self._disk.run(log.delete_records, log.high_watermark)
            assert not isinstance(deleted, ErrorCode), "it is within the log"
            await self._disk.run(log.truncate_fully_and_start_at, offset)
        except StorageError as error:
            self._failed(mirror, error)
            return
        mirror.skipped_records += skipped
        _log.warning("%s: %s; continuing there", log.topic_partition, verdict.reason)
        # Its readers and the waiters of its syncs would wait for what is gone.
        self._group_commit.abandon(log)

    async def begin_copy(self, mirror: Mirror, start: Offset = BEGINNING) -> None:
        """Begin an empty new copy of a mirror in a resync, in place of one that has begun."""
        try:
            async with mirror.writing:
                await to_its_end(self._begin_copy(mirror, start))
        except StorageError as error:
            self._failed(mirror, error)

    async def swap(self, mirror: Mirror, *, may_have_own: bool) -> None:
        """Put the new copy in the log's place, durably. The mirror then compares both logs.

        Args:
            may_have_own: whether the old log may have records that the source never had.
        """
        try:
            async with mirror.writing:
                await to_its_end(self._swap(mirror, may_have_own=may_have_own))
        except StorageError as error:
            self._failed(mirror, error)

    async def drop_copy(self, mirror: Mirror) -> None:
        """Remove the copy that a resync has left, if any."""
        async with mirror.writing:
            await to_its_end(self._drop_copy(mirror))

    async def put_aside(self, *logs: PartitionLog) -> dict[str, list[AsideLog]]:
        """Returns the logs that resyncs have put aside of these, by their directories. Raises
        StorageError."""
        return await self._disk.run(aside_logs, self._files, [log.directory for log in logs])

    async def finish(self, mirror: Mirror) -> None:
        """Drop the copy that a resync has left, and finish the log of a stopped mirror.

        Raises StorageError.
        """
        async with mirror.writing:
            await self._drop_copy(mirror)
            await self.finish_log(mirror.log)

    async def finish_log(self, log: PartitionLog) -> None:
        """Make a log that no link fills any longer fit to be written by producers, durably.

        Transactions that are open in it are aborted: their coordinator is the source's, and will never
        end them here. Foreign producers are forgotten: both clusters count producer ids from 0.

        Raises:
            StorageError: the disk failed.
        """
        await self._make_files(log)
        if log.leader_epoch <= log.epochs.latest:
            # Only if its files were restored into another directory, whose counter is behind.
            await self._lead_above(log, log.epochs.latest)
        for each in log.producers.open_transactions():
            state = log.producers.get(each.producer_id)
            assert state is not None
            log.appender.append_marker(
                each.producer_id,
                each.producer_epoch,
                is_commit=False,
                coordinator_epoch=max(state.coordinator_epoch, Epoch(0)),
                now_ms=self._now_ms(),
            )
        log.forget_producers(self._now_ms())
        self._group_commit.appended(log)
        await self._group_commit.durable(log, log.log_end_offset)

    async def _begin_copy(self, mirror: Mirror, start: Offset) -> None:
        resync, log = mirror.resync, mirror.log
        if resync is None:
            return  # It was stopped, or the copy has taken the log's place.
        if resync.target is not None:
            mirror.left_over, resync.target = resync.target.log, None
        await self._drop_copy(mirror)
        await self._make_files(log)
        copy = await self._disk.run(self._directory(log).begin_copy, log, start)
        if mirror.resync is resync:
            mirror.copy_begun(resync, copy)
            _log.warning("%s: a resync fills a new copy from offset %d", log.topic_partition, start)
        else:
            mirror.left_over = copy
            await self._drop_copy(mirror)

    async def _swap(self, mirror: Mirror, *, may_have_own: bool) -> None:
        resync, log = mirror.resync, mirror.log
        if resync is None or resync.target is None or not mirror.has_complete_copy:
            return
        copy = resync.target
        for each in (copy.log, log):
            await self._group_commit.rest(each)
        try:
            if copy.log.epochs.latest >= log.leader_epoch:
                await self._lead_above(log, copy.log.epochs.latest)
            if mirror.target is not copy:
                return
            old, new, is_compacted = mirror.own.place, copy.place, log.config.is_compacted
            puts_aside = goes_aside(
                resync.memory, old, new, is_compacted=is_compacted, may_have_own=may_have_own
            )
            aside = await self._disk.run(
                log.replace_with,
                copy.log,
                puts_aside=puts_aside,
                copy_id=resync.id,
                copied_from=copy.only_source,
            )
        except NoSpace as error:
            if copy.log.offline_reason is not None:
                raise
            # The new copy is complete and kept: a full disk has not changed it.
            self._wait_for_room(mirror, str(error))
            return
        mirror.swapped(copy)
        self._group_commit.abandon(log)
        mirror.left_over = copy.log
        await self._drop_copy(mirror)
        text = "nothing is put aside" if aside is None else f"removing {aside} frees its space"
        _log.warning(
            "%s: the resync is complete: offsets %d to %d; the log before ended at %d; %s",
            log.topic_partition,
            log.log_start_offset,
            log.log_end_offset,
            old.end,
            text,
        )

    async def _drop_copy(self, mirror: Mirror) -> None:
        copy = mirror.left_over
        if copy is None:
            return
        if not copy.is_retired:
            await self._group_commit.rest(copy)
        try:
            await self._disk.run(self._directory(mirror.log).drop_copy, copy)
        except StorageError as error:
            partition = mirror.log.topic_partition
            _log.error("%s: the next start removes the copy of its resync: %s", partition, error)
        self._group_commit.abandon(copy)
        mirror.left_over = None

    def _directory(self, log: PartitionLog) -> LogDirectory:
        return self._directories[log.identity.directory_id]

    async def _append_batches(self, mirror: Mirror, target: Target, fetched: Fetched) -> None:
        log = target.log
        if not len(fetched.records):
            return
        await self._make_files(log)
        rest, pace = memoryview(fetched.records), Pace(self._turns)
        await self._start_at_batch(mirror, target, rest)
        while len(rest) and mirror.asks_for(target):
            run = await self._checked(rest, target)
            if len(run.view) and run.end_offset > fetched.answer.high_watermark:
                # Its CRC does not cover a batch's base offset.
                raise CorruptBatch(
                    f"batches up to offset {run.end_offset}, beyond its high watermark"
                    f" {fetched.answer.high_watermark}"
                )
            if run.last_epoch >= log.leader_epoch:
                await self._lead_above(log, run.last_epoch)
            if len(run.view) and mirror.asks_for(target):
                self._append_run(mirror, log, run)
            if run.fault:
                raise CorruptBatch(run.fault)
            rest = run.rest
            if pace.is_over:
                await pace.rest()

    async def _start_at_batch(self, mirror: Mirror, target: Target, records: memoryview) -> None:
        """Start an empty log at the first batch if the source's start lies within that, because a batch
        is appended as a whole; the start then follows the source's.

        Source: Apache Kafka, Partition.scala (UnexpectedAppendOffsetException).
        """
        log = target.log
        if not target.is_empty:
            return
        try:
            first = read_header(records)
        except (CorruptBatch, UnsupportedMagic):
            return  # The check of the run says what is wrong.
        if first.base_offset < log.log_end_offset < first.next_offset:
            await self._group_commit.rest(log)
            if mirror.asks_for(target):
                await self._disk.run(log.truncate_fully_and_start_at, first.base_offset)

    async def _checked(self, records: memoryview, target: Target) -> BatchRun:
        """Returns the first run of an answer; a very large batch is checked in a thread."""
        place = target.place
        if takes_long(records):
            return await self._disk.run(
                check_run, records, end=place.end, last_epoch=place.last_epoch
            )
        return check_run(records, end=place.end, last_epoch=place.last_epoch)

    def _append_run(self, mirror: Mirror, log: PartitionLog, run: BatchRun) -> None:
        before = log.log_end_offset
        try:
            log.appender.append_as_follower(run, now_ms=self._now_ms())
            mirror.copied_bytes += len(run.view)
        finally:
            # A failed write leaves the batches in earlier segments.
            if log.log_end_offset > before:
                self._group_commit.appended(log)

    async def _lead_above(self, log: PartitionLog, epoch: Epoch) -> None:
        """Lead with an epoch above the source's, now and after a restart."""
        await self._disk.run(self._directory(log).raise_epoch, epoch)
        log.lead_above(epoch)

    async def _follow_end(self, mirror: Mirror, target: Target, fetched: Fetched) -> None:
        """Move the end over records that the source has cleaned away behind its last batch."""
        log, epoch = target.log, fetched.gap_epoch
        if epoch is None or not fetched.has_gap_from(log.log_end_offset):
            return
        if epoch >= log.leader_epoch and mirror.asks_for(target):
            await self._lead_above(log, epoch)
        if mirror.asks_for(target):
            end = fetched.answer.high_watermark
            log.appender.advance_end(end, now_ms=self._now_ms(), leader_epoch=epoch)
            self._group_commit.appended(log)

    async def _follow_start(self, mirror: Mirror, target: Target, start: Offset) -> None:
        """Move the start as the source's retention or DeleteRecords has."""
        log = target.log
        wanted = min(start, log.high_watermark)
        if wanted > log.log_start_offset and mirror.asks_for(target):
            deleted = await self._disk.run(log.delete_records, Offset(wanted))
            assert not isinstance(deleted, ErrorCode), "it is within the log"

    def _failed(self, mirror: Mirror, error: StorageError) -> None:
        """Report a failure of the disk. A full one is waited for, except that it ends a resync, because
        that takes room itself."""
        is_full = isinstance(error, NoSpace) and mirror.log.offline_reason is None
        if is_full and mirror.resync is None:
            self._wait_for_room(mirror, str(error))
            return
        _log.error("%s: cannot be mirrored: %s", mirror.log.topic_partition, error)
        mirror.happened(Event.DISK_FAILED, str(error))

    def _wait_for_room(self, mirror: Mirror, reason: str) -> None:
        """Let the mirror try again later what a full disk has refused."""
        reason = f"it waits for room on the disk: {reason}"
        _log.warning("%s: %s", mirror.log.topic_partition, reason)
        mirror.answered(Verdict(guard=Guard.ERROR, reason=reason))
