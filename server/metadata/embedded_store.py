"""The metadata store of a single broker: it keeps the map in memory and logs every change to disk.

`server/metadata/store.py` has the contract, `server/metadata/machine.py` the map, and
`server/metadata/log.py` the log and its snapshots.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from replog.compactor import CompactionFacts
from replog.entry import SnapshotId
from replog.messages import Answer, Request
from replog.trigger import RETRY_SECONDS, CompactionSettings
from server.metadata.log import MetadataLog
from server.metadata.machine import Operation
from server.metadata.store import (
    Change,
    Compare,
    Delete,
    Entry,
    LeaseNotFound,
    Put,
    RangeResult,
    RevisionCompacted,
    TxnResult,
)
from server.runtime.tasks import call_later, spawn
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.metadata.embedded_store")

T = TypeVar("T")

INLINE_OPERATIONS_MAX = 256
"""Larger transactions are computed in the worker thread, so that they do not hold the loop."""


@loop_thread
class EmbeddedMetadataStore:
    """The store of a single broker. One worker thread does the disk work.

    It is the sole writer of its directory. Readers see only durable changes. Cancelling the caller does
    not interrupt a change, so that the lock always covers a whole change.
    """

    __slots__ = (
        "_deadlines", "_expiring", "_expiry", "_is_quiet", "_lock", "_log", "_machine", "_news",
        "_next_attempt_s", "_snapshotter", "_snapshotting", "_worker",
    )  # fmt: skip

    def __init__(self, log: MetadataLog, is_quiet: Callable[[], bool]) -> None:
        # Constant after construction
        self._log = log
        self._is_quiet = is_quiet
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="metadata")
        self._lock = asyncio.Lock()
        self._snapshotter = ThreadPoolExecutor(1, thread_name_prefix="metadata-snapshot")
        # State: the lock covers every change of the map and of the log.
        self._machine = log.machine
        self._snapshotting: set[asyncio.Task[None]] = set()
        # When the next snapshot may begin, on the loop's clock: later, if the last one has failed.
        self._next_attempt_s = 0.0
        self._news: asyncio.Future[None] | None = None
        # When each lease expires, on the loop's clock.
        self._deadlines: dict[int, float] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._expiring: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        files: FileSystem,
        directory: str,
        settings: CompactionSettings | None = None,
        *,
        on_failure: Callable[[StorageError], None] = lambda _: None,
        any_topic: Callable[[], str | None] = lambda: None,
        is_quiet: Callable[[], bool] = lambda: False,
        term_min: int = 1,
    ) -> EmbeddedMetadataStore:
        """Open the store in `directory`, creating it if it is new.

        Args:
            settings: when to snapshot, and what to keep.
            on_failure: called, in any thread, when the store is permanently out of service.
            any_topic: returns the path of some topic's directory, or None. If there is a topic, the
                store must not be new. Called in a worker thread.
            is_quiet: returns whether the process has little to do, so that a snapshot may begin early.
            term_min: the least term in which this process leads the log.

        Raises:
            MissingMetadata: the store is new, but a topic exists.
            StorageError: its files are damaged, were written by a later release, or cannot be read.
        """
        log = MetadataLog(
            files,
            directory,
            settings or CompactionSettings(),
            on_failure=on_failure,
            any_topic=any_topic,
            term_min=term_min,
        )
        store = cls(log, is_quiet)
        try:
            await store._in_worker(log.recover)
        except BaseException:
            store._end_threads()
            raise
        for lease in store._machine.leases:
            store._start_lease(lease)
        return store

    async def close(self) -> None:
        """Finish running changes and close the files."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._expiring:
            await asyncio.wait(self._expiring)
        if self._snapshotting:
            self._log.stop_snapshot()
            await asyncio.wait(self._snapshotting)
        async with self._lock:
            self._log.close()
            self._end_threads()

    def _end_threads(self) -> None:
        self._worker.shutdown()
        self._snapshotter.shutdown()

    @any_thread
    def facts(self) -> CompactionFacts:
        """Returns what metrics show about the log and its snapshots."""
        return self._log.compactor.facts()

    # For followers.

    @property
    @any_thread
    def term(self) -> int:
        """The term in which this process leads the log."""
        return self._log.replica.term

    @property
    @any_thread
    def log_start(self) -> int:
        """The index of the first entry of the log."""
        return self._log.replica.log.start

    @property
    @any_thread
    def log_end(self) -> int:
        """The index after the last durable entry; watches may not know that one yet."""
        return self._log.replica.log.end

    @property
    def digest(self) -> tuple[int, int]:
        """The digest of the state, and the index after the last entry in it."""
        return self._machine.digest(), self._log.replica.applied_end

    async def answer_follower(self, request: Request, bytes_max: int) -> Answer:
        """Returns the answer to a follower, read between two changes. Raises StorageError."""
        async with self._lock:
            return await self._in_worker(self._log.answer, request, bytes_max)

    def pin_snapshots(self, pinned: Callable[[], Collection[SnapshotId]]) -> None:
        """Keep the snapshots that `pinned` returns, in any thread, and the log after them."""
        self._log.compactor.pinned = pinned

    def news(self) -> asyncio.Future[None]:
        """Returns what is done once the next change is durable. Others wait for it: do not cancel it."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    @property
    def revision(self) -> int:
        """The revision of the last change; 0 for a new store."""
        return self._machine.revision

    async def range(self, prefix: str) -> RangeResult:
        keys = self._machine.keys
        start = bisect.bisect_left(keys, prefix)
        end = start
        while end < len(keys) and keys[end].startswith(prefix):
            end += 1
        entries = tuple(self._machine.entries[key] for key in keys[start:end])
        return RangeResult(revision=self.revision, entries=entries)

    def entries(self) -> tuple[Entry, ...]:
        """Returns all entries as of now, in no order."""
        return tuple(self._machine.entries.values())

    async def get(self, key: str) -> Entry | None:
        return self._machine.entries.get(key)

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TxnResult:
        return await asyncio.shield(self._txn(compares, operations))

    async def _txn(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TxnResult:
        async with self._lock:
            if not all(self._holds(compare) for compare in compares):
                return TxnResult(succeeded=False, revision=self.revision)
            entries, leases = self._machine.entries, self._machine.leases
            if len(operations) > INLINE_OPERATIONS_MAX:
                written = await self._in_worker(_effective, operations, entries, leases)
            else:
                written = _effective(operations, entries, leases)
            if written:
                await self._write(written)
            return TxnResult(succeeded=True, revision=self.revision)

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Change]:
        revision = after_revision + 1
        history = self._machine.history
        while True:
            if revision < history.oldest:
                raise RevisionCompacted(history.oldest)
            while history.oldest <= revision <= self.revision:
                change = _under(prefix, history.at(revision))
                revision += 1
                if change is not None:
                    yield change
            if revision > self.revision:
                await self._next_change()

    async def grant(self, ttl_ms: int) -> int:
        assert ttl_ms > 0
        return await asyncio.shield(self._grant(ttl_ms))

    async def _grant(self, ttl_ms: int) -> int:
        async with self._lock:
            lease = self.revision + 1
            await self._write([["grant", lease, ttl_ms]])
            self._start_lease(lease)
            return lease

    async def keep_alive(self, lease: int) -> None:
        if lease not in self._machine.leases:
            raise LeaseNotFound(lease)
        self._start_lease(lease)

    async def revoke(self, lease: int) -> None:
        await asyncio.shield(self._revoke(lease))

    async def _revoke(self, lease: int) -> None:
        async with self._lock:
            if lease not in self._machine.leases:
                raise LeaseNotFound(lease)
            await self._write([["revoke", lease]])
            self._deadlines.pop(lease, None)

    # Writing: under the lock.

    def _holds(self, compare: Compare) -> bool:
        entry = self._machine.entries.get(compare.key)
        return (entry.mod_revision if entry else 0) == compare.mod_revision

    async def _in_worker(self, work: Callable[..., T], *arguments: object) -> T:
        """Run work over the map in the worker thread. The lock keeps the map as it is meanwhile."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, work, *arguments)

    async def _write(self, operations: list[Operation]) -> None:
        """Log one transaction, then apply it to the map and notify watches."""
        machine = self._machine
        logged = await self._in_worker(self._log.append, operations)
        if len(operations) > INLINE_OPERATIONS_MAX:
            machine.replace(await self._in_worker(machine.prepared, operations))
        else:
            machine.run(operations)
        self._log.applied(logged)
        self._notify_watches()
        if self._log.due(is_quiet=self._is_quiet()) is not None and self._may_snapshot():
            await self._begin_snapshot()

    # Snapshots.

    def _may_snapshot(self) -> bool:
        return asyncio.get_running_loop().time() >= self._next_attempt_s

    def _snapshot_failed(self) -> None:
        """Log the failure, and let the next transactions be served without another attempt."""
        self._next_attempt_s = asyncio.get_running_loop().time() + RETRY_SECONDS
        _log.exception("the metadata store could not write a snapshot")

    async def _begin_snapshot(self) -> None:
        """Write a small snapshot now, begin a large one. If that fails, the transaction is durable."""
        try:
            if self._log.is_small:
                await self._in_worker(_write_whole, self._log)
                return
            await self._in_worker(self._log.begin_snapshot)
        except Exception:  # noqa: BLE001 - the transaction is durable in any case
            self._snapshot_failed()
            return
        spawn(self._finish_snapshot(), "metadata snapshot", among=self._snapshotting)

    async def _finish_snapshot(self) -> None:
        """Write the rows beside other transactions, then complete the snapshot between two of them."""
        try:
            while not await self._is_written():
                pass
        except Exception:  # noqa: BLE001 - a later one may succeed
            self._snapshot_failed()

    async def _is_written(self) -> bool:
        """Write the snapshot. Returns False if another one was begun instead, which must be written."""
        log, loop = self._log, asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._snapshotter, log.write_snapshot)
        except Exception:
            # While a snapshot is under way, no other one is due: never leave one that has failed.
            async with self._lock:
                await self._in_worker(log.abandon_snapshot)
            raise
        async with self._lock:
            return await self._in_worker(log.finish_snapshot)

    # Watches.

    async def _next_change(self) -> None:
        await asyncio.shield(self.news())

    def _notify_watches(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    # Leases. A restart restarts each lease's time, as no client could keep it alive meanwhile.

    def _start_lease(self, lease: int) -> None:
        loop = asyncio.get_running_loop()
        self._deadlines[lease] = loop.time() + self._machine.leases[lease] / 1000
        self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._deadlines:
            loop = asyncio.get_running_loop()
            seconds = max(min(self._deadlines.values()) - loop.time(), 0.0)
            self._expiry = call_later(seconds, "metadata leases", self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the leases that have expired."""
        for lease in [each for each, at in self._deadlines.items() if at <= loop.time()]:
            del self._deadlines[lease]
            spawn(self._end_expired(lease), "metadata lease", among=self._expiring)
        self._schedule_expiry()

    async def _end_expired(self, lease: int) -> None:
        async with self._lock:
            # The lease may have been kept alive or revoked while this waited for the lock.
            if lease in self._machine.leases and lease not in self._deadlines:
                try:
                    await self._write([["revoke", lease]])
                except StorageError:
                    _log.exception("could not end lease %d, which has expired", lease)


def _effective(
    operations: Sequence[Put | Delete], entries: Mapping[str, Entry], leases: Mapping[int, int]
) -> list[Operation]:
    """Returns the operations to log, without deletions of keys that do not exist."""
    written: list[Operation] = []
    present: dict[str, bool] = {}
    for operation in operations:
        key = operation.key
        if isinstance(operation, Put):
            if operation.lease and operation.lease not in leases:
                raise LeaseNotFound(operation.lease)
            written.append(["put", key, operation.value, operation.lease])
            present[key] = True
        elif present.get(key, key in entries):
            written.append(["delete", key])
            present[key] = False
    return written


def _write_whole(log: MetadataLog) -> None:
    log.begin_snapshot()
    try:
        log.write_snapshot()
    except BaseException:
        log.abandon_snapshot()
        raise
    log.finish_snapshot()


def _under(prefix: str, change: Change) -> Change | None:
    """Returns the part of a change that concerns keys under `prefix`; None if there is none."""
    entries = tuple(entry for entry in change.entries if entry.key.startswith(prefix))
    deleted = tuple(key for key in change.deleted if key.startswith(prefix))
    if not entries and not deleted:
        return None
    return Change(revision=change.revision, entries=entries, deleted=deleted)
