"""The metadata store of a single broker: it keeps the map in memory and logs every change to disk.

`server/metadata/store.py` has the contract, `server/metadata/log.py` the log.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from server.metadata.files import Operation, State, Transaction
from server.metadata.log import MetadataLog
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
from storage.threads import loop_thread

_log = logging.getLogger("server.metadata.embedded_store")

T = TypeVar("T")

INLINE_OPERATIONS_MAX = 256
"""Larger transactions are computed in the worker thread, so that they do not hold the loop."""

HISTORY_REVISIONS_MAX = 10_000
"""The most revisions that are kept for watches that start in the past."""


@loop_thread
class EmbeddedMetadataStore:
    """The store of a single broker. One worker thread does the disk work.

    It is the sole writer of its directory. Readers see only durable changes. Cancelling the caller does
    not interrupt a change, so that the lock always covers a whole change.
    """

    __slots__ = (
        "_deadlines", "_entries", "_expiring", "_expiry", "_history", "_keys", "_leases", "_lock",
        "_log", "_news", "_oldest", "_revision", "_worker",
    )  # fmt: skip

    def __init__(self, log: MetadataLog) -> None:
        # Constant after construction
        self._log = log
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="metadata")
        self._lock = asyncio.Lock()
        # State: the map at `_revision`; `_keys` has its keys in order.
        self._revision = 0
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []
        self._leases: dict[int, int] = {}
        # The changes of the revisions [_oldest, _revision], for watches.
        self._history: deque[Change] = deque()
        self._oldest = 1
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
        *,
        on_failure: Callable[[StorageError], None] = lambda _: None,
        any_topic: Callable[[], str | None] = lambda: None,
    ) -> EmbeddedMetadataStore:
        """Open the store in `directory`, creating it if it is new.

        Args:
            on_failure: called, in any thread, when the store is permanently out of service.
            any_topic: returns the path of some topic's directory, or None. If there is a topic, the
                store must not be new. Called in a worker thread.

        Raises:
            MissingMetadata: the store is new, but a topic exists.
            StorageError: its files are damaged, were written by a later release, or cannot be read.
        """
        log = MetadataLog(files, directory, on_failure=on_failure, any_topic=any_topic)
        store = cls(log)
        loop = asyncio.get_running_loop()
        try:
            state, transactions = await loop.run_in_executor(store._worker, store._log.recover)
        except BaseException:
            store._worker.shutdown()
            raise
        store._restore(state)
        for transaction in transactions:
            store._apply(transaction)
        for lease in store._leases:
            store._start_lease(lease)
        return store

    async def close(self) -> None:
        """Finish running changes and close the files."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._expiring:
            await asyncio.wait(self._expiring)
        async with self._lock:
            self._log.close()
            self._worker.shutdown()

    @property
    def revision(self) -> int:
        """The revision of the last change; 0 for a new store."""
        return self._revision

    async def range(self, prefix: str) -> RangeResult:
        start = bisect.bisect_left(self._keys, prefix)
        end = start
        while end < len(self._keys) and self._keys[end].startswith(prefix):
            end += 1
        entries = tuple(self._entries[key] for key in self._keys[start:end])
        return RangeResult(revision=self._revision, entries=entries)

    async def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TxnResult:
        return await asyncio.shield(self._txn(compares, operations))

    async def _txn(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TxnResult:
        async with self._lock:
            if not all(self._holds(compare) for compare in compares):
                return TxnResult(succeeded=False, revision=self._revision)
            if len(operations) > INLINE_OPERATIONS_MAX:
                written = await self._in_worker(_effective, operations, self._entries, self._leases)
            else:
                written = _effective(operations, self._entries, self._leases)
            if written:
                await self._write(written)
            return TxnResult(succeeded=True, revision=self._revision)

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Change]:
        revision = after_revision + 1
        while True:
            if revision < self._oldest:
                raise RevisionCompacted(self._oldest)
            while revision <= self._revision and revision >= self._oldest:
                change = _under(prefix, self._history[revision - self._oldest])
                revision += 1
                if change is not None:
                    yield change
            if revision > self._revision:
                await self._next_change()

    async def grant(self, ttl_ms: int) -> int:
        assert ttl_ms > 0
        return await asyncio.shield(self._grant(ttl_ms))

    async def _grant(self, ttl_ms: int) -> int:
        async with self._lock:
            lease = self._revision + 1
            await self._write([["grant", lease, ttl_ms]])
            self._start_lease(lease)
            return lease

    async def keep_alive(self, lease: int) -> None:
        if lease not in self._leases:
            raise LeaseNotFound(lease)
        self._start_lease(lease)

    async def revoke(self, lease: int) -> None:
        await asyncio.shield(self._revoke(lease))

    async def _revoke(self, lease: int) -> None:
        async with self._lock:
            if lease not in self._leases:
                raise LeaseNotFound(lease)
            await self._write([["revoke", lease]])

    # Writing: under the lock.

    def _holds(self, compare: Compare) -> bool:
        entry = self._entries.get(compare.key)
        return (entry.mod_revision if entry else 0) == compare.mod_revision

    async def _in_worker(self, work: Callable[..., T], *arguments: object) -> T:
        """Run work over the map in the worker thread. The lock keeps the map as it is meanwhile."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, work, *arguments)

    async def _write(self, operations: list[Operation]) -> None:
        """Log one transaction, then apply it to the map and notify watches."""
        revision = await self._in_worker(self._log.append, operations)
        transaction = Transaction(revision=revision, operations=operations)
        if len(operations) > INLINE_OPERATIONS_MAX:
            self._replace(
                await self._in_worker(_changes_of, transaction, self._entries, self._keys)
            )
        else:
            self._apply(transaction)
        self._notify_watches()
        if self._log.is_due_for_snapshot:
            await self._snapshot()

    async def _snapshot(self) -> None:
        """Replace the log by a snapshot. If that fails, the last transaction is still durable."""
        try:
            await self._in_worker(
                _write_snapshot, self._log, self._revision, self._entries, self._leases
            )
        except StorageError:
            _log.exception("the metadata store could not write a snapshot")

    # State in memory.

    def _restore(self, state: State) -> None:
        self._revision = state.revision
        self._oldest = state.revision + 1
        for key, value, created, modified, lease, *_ in state.entries:
            self._entries[key] = Entry(
                key=key, value=value, create_revision=created, mod_revision=modified, lease=lease
            )
        self._keys = sorted(self._entries)
        self._leases = {lease: ttl_ms for lease, ttl_ms, *_ in state.leases}

    def _replace(self, changes: _Changes) -> None:
        """Apply a large transaction, whose effect the worker has computed."""
        change = changes.change
        self._revision = change.revision
        self._entries.update((entry.key, entry) for entry in change.entries)
        for key in change.deleted:
            self._entries.pop(key, None)
        self._keys = changes.keys
        self._keep(change)

    def _apply(self, transaction: Transaction) -> None:
        """Apply one logged transaction to the map, and keep it for watches."""
        changed: dict[str, Entry | None] = {}
        self._revision = transaction.revision
        for verb, *arguments in transaction.operations:
            if verb == "put":
                self._set(changed, *arguments)
            elif verb == "delete":
                self._remove(changed, arguments[0])
            elif verb == "grant":
                self._leases[arguments[0]] = arguments[1]
            elif verb == "revoke":
                self._end_lease(changed, arguments[0])
            else:
                raise AssertionError(f"unknown operation {verb} in the metadata log")
        self._keep(_change(transaction.revision, changed))

    def _keep(self, change: Change) -> None:
        """Keep a change for watches."""
        self._history.append(change)
        if len(self._history) > HISTORY_REVISIONS_MAX:
            self._history.popleft()
            self._oldest += 1
        self._check_history_ends_at_revision()

    def _check_history_ends_at_revision(self) -> None:
        assert self._oldest + len(self._history) == self._revision + 1
        assert len(self._keys) == len(self._entries)

    def _set(self, changed: dict[str, Entry | None], key: str, value: str, lease: int) -> None:
        before = self._entries.get(key)
        entry = _entry_after(before, key, value, lease, self._revision)
        if before is None:
            bisect.insort(self._keys, key)
        self._entries[key] = changed[key] = entry

    def _remove(self, changed: dict[str, Entry | None], key: str) -> None:
        if self._entries.pop(key, None) is not None:
            del self._keys[bisect.bisect_left(self._keys, key)]
            changed[key] = None

    def _end_lease(self, changed: dict[str, Entry | None], lease: int) -> None:
        self._leases.pop(lease, None)
        self._deadlines.pop(lease, None)
        for key in [key for key, entry in self._entries.items() if entry.lease == lease]:
            self._remove(changed, key)

    # Watches.

    async def _next_change(self) -> None:
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _notify_watches(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    # Leases. A restart restarts each lease's time, as no client could keep it alive meanwhile.

    def _start_lease(self, lease: int) -> None:
        loop = asyncio.get_running_loop()
        self._deadlines[lease] = loop.time() + self._leases[lease] / 1000
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
            if lease in self._leases and lease not in self._deadlines:
                try:
                    await self._write([["revoke", lease]])
                except StorageError:
                    _log.exception("could not end lease %d, which has expired", lease)


@dataclass(frozen=True, slots=True)
class _Changes:
    """The effect of a large transaction, and the map's keys after it, in their order."""

    change: Change
    keys: list[str]


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


def _changes_of(
    transaction: Transaction, entries: Mapping[str, Entry], keys: list[str]
) -> _Changes:
    """Returns the effect of a transaction of puts and deletions on the map."""
    revision = transaction.revision
    changed: dict[str, Entry | None] = {}
    for verb, key, *rest in transaction.operations:
        if verb == "put":
            before = changed[key] if key in changed else entries.get(key)
            value, lease = rest
            changed[key] = _entry_after(before, key, value, lease, revision)
        else:
            assert verb == "delete", f"{verb} in a large transaction"
            changed[key] = None
    left = [key for key in keys if changed.get(key, entries[key]) is not None]
    left += [key for key, entry in changed.items() if entry is not None and key not in entries]
    left.sort()
    return _Changes(_change(revision, changed), left)


def _change(revision: int, changed: Mapping[str, Entry | None]) -> Change:
    return Change(
        revision=revision,
        entries=tuple(entry for entry in changed.values() if entry is not None),
        deleted=tuple(key for key, entry in changed.items() if entry is None),
    )


def _entry_after(before: Entry | None, key: str, value: str, lease: int, revision: int) -> Entry:
    return Entry(
        key=key,
        value=value,
        create_revision=before.create_revision if before else revision,
        mod_revision=revision,
        lease=lease,
    )


def _write_snapshot(
    log: MetadataLog, revision: int, entries: Mapping[str, Entry], leases: Mapping[int, int]
) -> None:
    state = State(
        revision=revision,
        entries=[
            [e.key, e.value, e.create_revision, e.mod_revision, e.lease] for e in entries.values()
        ],
        leases=[[lease, ttl_ms] for lease, ttl_ms in leases.items()],
    )
    log.snapshot(state)


def _under(prefix: str, change: Change) -> Change | None:
    """Returns the part of a change that concerns keys under `prefix`; None if there is none."""
    entries = tuple(entry for entry in change.entries if entry.key.startswith(prefix))
    deleted = tuple(key for key in change.deleted if key.startswith(prefix))
    if not entries and not deleted:
        return None
    return Change(revision=change.revision, entries=entries, deleted=deleted)
