"""Runs a broker on its own event loop, until a signal stops it or it cannot continue.

A broker that is fenced, or no longer is, stops in the usual order, which ends everything that writes by
itself, and another one starts in its place on the same loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import uvloop

from server.broker import Broker
from server.config.config import BrokerConfig
from server.config.standby_config import FENCED_BY
from server.net.listener import ListenError
from server.runtime.clock import SystemClock
from server.runtime.release import release
from server.runtime.signals import StopSignal
from server.runtime.tasks import awaited
from server.security.audit_file import audit_file
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem
from storage.files.open_files import raise_descriptor_limit, share_descriptors
from storage.files.paths import AUDIT_LOG, join

_log = logging.getLogger("server.run")

HEAP_BLOCK_BYTES_MAX = 4 << 20
"""The allocator takes blocks up to this size from the heap, and keeps twice as much free heap."""


def run_until_stopped(config: BrokerConfig) -> str | None:
    """Serve until a signal stops the broker. Returns what went wrong, in one line, or None."""
    data = ", ".join(str(Path(path).absolute()) for path in config.data_directories)
    _log.info("Kompakt %s starts: node %d, data in %s", release(), config.node_id, data)
    prepare_process()
    try:
        return uvloop.run(serve(config))
    except (ListenError, StorageError) as error:
        return str(error)


def prepare_process() -> None:
    """Set what holds for the whole process: how freed memory is kept, and how many files it may open."""
    _keep_freed_memory()
    share_descriptors(raise_descriptor_limit())


def _audit_file(config: BrokerConfig) -> AbstractContextManager[None]:
    path = config.audit_log_file or join(config.metadata_directory, AUDIT_LOG)
    return audit_file(
        Path(path), bytes_max=config.audit_log_max_bytes, backups=config.audit_log_backups
    )


def _keep_freed_memory() -> None:
    """Make the allocator reuse the memory of one frame for the next.

    glibc returns every block above 128 KiB to the system at once, so each frame would fault in new
    pages: that took a fifth of the CPU time of a produce. When glibc frees a large mapped block, it
    raises its thresholds permanently (mallopt(3), M_MMAP_THRESHOLD). The block's pages are never
    touched. Other C libraries are not affected.
    """
    bytes(HEAP_BLOCK_BYTES_MAX)


async def serve(
    config: BrokerConfig,
    signal: StopSignal | None = None,
    *,
    when_started: Callable[[], None] = lambda: None,
) -> str | None:
    """Run a broker on this loop until a signal stops it. Returns what went wrong, in one line, or None.

    Args:
        signal: None: one of its own.
        when_started: called once the broker serves clients, also each time that it has started again.

    Raises:
        ListenError, StorageError: it cannot start.
    """
    signal = signal or StopSignal()
    with _audit_file(config):
        while True:
            broker = Broker(config, files=LocalFileSystem(), clock=SystemClock())
            try:
                with _no_collections():
                    await broker.start()
                when_started()
                await _first_of(signal.wait(), broker.wait_failed(), broker.wait_restart())
            finally:
                await broker.stop()
            if signal.is_set or broker.failure is not None:
                break
            _log.info("stopped; starting again because %s has changed", FENCED_BY)
            del broker
            _free_collected()
    _log.info("stopped")
    return broker.failure


@contextmanager
def _no_collections() -> Iterator[None]:
    """Create long-lived objects without garbage collection, and exempt them from later collections.

    With 10,000 partitions, collections took a fifth of the start, and one full collection holds the
    loop for a tenth of a second. Reference counting still frees what is deleted. The first start finds
    the collector off already (`cli/main.py`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _free_collected() -> None:
    """Free what the broker that has stopped leaves in reference cycles, before its successor is exempted
    from collections together with everything else in memory."""
    gc.unfreeze()
    gc.collect()


async def _first_of(*waits: Coroutine[None, None, None]) -> None:
    """Wait until one of them returns, and cancel the others."""
    tasks = [awaited(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
