"""Run one broker on an event loop of its own, until a signal or until it cannot go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from server.broker import Broker
from server.clock import SystemClock
from server.config import BrokerConfig
from server.listener import ListenError
from server.release import release
from server.signals import StopSignal
from server.tasks import awaited
from storage.errors import StorageError
from storage.local_files import LocalFileSystem
from storage.open_files import share_descriptors

_log = logging.getLogger("server.run")

KEPT_BYTES = 4 << 20
"""Blocks up to this size come from the heap, and twice as much of it is kept when it is free."""


def run_until_stopped(config: BrokerConfig) -> str | None:
    """Serve until asked to stop; what went wrong, in one line, None if nothing did."""
    data = ", ".join(str(Path(path).absolute()) for path in config.data_directories)
    _log.info("Kompakt %s starts: node %d, data in %s", release(), config.node_id, data)
    _keep_freed_memory()
    _raise_descriptor_limit()
    try:
        return uvloop.run(_run(config))
    except (ListenError, StorageError) as error:
        return str(error)


def _keep_freed_memory() -> None:
    """Have the allocator use a frame's memory again for the next one.

    glibc gives everything above 128 KiB back at once, and the pages of each frame would be new
    ones: that took a fifth of all CPU time of a produce. To free a large block that it had mapped
    raises its thresholds for good (mallopt(3), M_MMAP_THRESHOLD); the block is never touched.
    Another C library takes no notice.
    """
    bytes(KEPT_BYTES)


def _raise_descriptor_limit() -> None:
    """Take all descriptors that the system lets this process have, as servers do."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    share_descriptors(hard)


async def _run(config: BrokerConfig) -> str | None:
    signal = StopSignal()
    broker = Broker(config, files=LocalFileSystem(), clock=SystemClock())
    try:
        with _no_collections():
            await broker.start()
        await _first_of(signal.wait(), broker.wait_failed())
    finally:
        await broker.stop()
    _log.info("stopped")
    return broker.failure


@contextmanager
def _no_collections() -> Iterator[None]:
    """Make what stays for good, and have the garbage collector leave it alone ever after.

    With 10,000 partitions its looks at them took a fifth of a start, and one full collection holds
    the loop for a tenth of a second. Reference counts free what is deleted all the same.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def _first_of(*waits: Coroutine[None, None, None]) -> None:
    """Return when one of them does."""
    tasks = [awaited(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
