"""Thread pools for work that would block the event loop: one bounded pool for each purpose.

A slow disk that blocks the administration pool does not delay the validation of produced batches:
the pools share no threads. Nothing in the broker uses the loop's shared default executor. Work that
finds no free thread waits in the queue of its pool. A client cannot flood the queue, because its
connection waits for its own request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Executor:
    """A named pool of threads, started on first use."""

    __slots__ = ("_name", "_pool", "_threads")

    def __init__(self, name: str, *, threads: int) -> None:
        self._name = name
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `work` in a thread of this pool. Returns its result or raises its exception.

        Cancelling the caller does not stop work that has started.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._started(), lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Finish the submitted work and end the threads. Blocks."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        return self._pool


class Executors:
    """The broker's thread pools. The broker owns them; handlers use them through `broker`."""

    __slots__ = (
        "administration", "assigning", "authentication", "checkpoints", "decoding", "issuers",
        "key_lookups", "ledger_verification", "ledgers", "loading", "lookups", "record_counts",
        "registry", "removals", "scrapes", "snapshots", "upkeep", "validation", "verification",
    )  # fmt: skip

    def __init__(self) -> None:
        self.validation = Executor("validation", threads=2)
        """Validates, inflates and recompresses produced batches. CPU-bound."""
        self.lookups = Executor("lookups", threads=4)
        """Reads indexes, segments and checkpoints for a request: ListOffsets by time, FetchSnapshot."""
        self.administration = Executor("administration", threads=4)
        """Creates, grows, configures and cleans topics, and deletes records, for a request."""
        self.assigning = Executor("assigning", threads=1)
        """Takes steps of consumer groups that assign many partitions. CPU-bound."""
        self.removals = Executor("removals", threads=1)
        """Removes the files of deleted topics. No request waits for it: a file system may need minutes
        for large files, and administration must not wait behind it."""
        self.authentication = Executor("authentication", threads=2)
        """Derives keys from clients' passwords, and verifies tokens. CPU-bound."""
        self.issuers = Executor("issuers", threads=1)
        """Fetches the keys of token issuers, from files and over the network."""
        self.key_lookups = Executor("key_lookups", threads=2)
        """Looks up the last values of keys, filters views, and makes the tables for both."""
        self.registry = Executor("registry", threads=4)
        """Fetches schemas from a registry, which may be slow or down."""
        self.decoding = Executor("decoding", threads=1)
        """Has values decoded by the decoding process, which takes one at a time."""
        self.record_counts = Executor("record_counts", threads=1)
        """Counts the records of logs, over the headers of their batches."""
        self.ledgers = Executor("ledgers", threads=1)
        """Reads the ledgers of cleaning passes."""
        self.ledger_verification = Executor("ledger_verification", threads=1)
        """Verifies the ledgers of cleaning passes. It reads every cleaned segment at the cleaner's pace:
        no request may wait behind that."""
        self.loading = Executor("loading", threads=2)
        """Loads a coordinator's partition into memory."""
        self.checkpoints = Executor("checkpoints", threads=1)
        """Makes the checkpoints of the coordinators' partitions."""
        self.snapshots = Executor("snapshots", threads=1)
        """Makes, reads and removes snapshots."""
        self.upkeep = Executor("upkeep", threads=2)
        """Runs the broker's own work: log duties, free space checks, start and stop."""
        self.verification = Executor("verification", threads=1)
        """Reads and compares mirrors for `kompakt replica verify`, in pieces."""
        self.scrapes = Executor("scrapes", threads=1)
        """Collects metrics. A pool of its own, so that metrics still report a disk that hangs."""

    def close(self) -> None:
        """Finish the submitted work of every pool and end the threads. Blocks."""
        for name in self.__slots__:
            pool: Executor = getattr(self, name)
            pool.close()
