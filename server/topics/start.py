"""Opens all logs in a thread at a start, and logs the progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from cleaner.rules.text import count_text
from server.runtime.executors import Executor
from server.runtime.tasks import awaited
from storage.recovery.progress import RecoveryProgress

R = TypeVar("R")

_log = logging.getLogger("server.topics.topics")

PROGRESS_SECONDS = 5.0
"""A start that takes longer logs its progress at this interval."""


async def with_progress(executor: Executor, work: Callable[[], R], progress: RecoveryProgress) -> R:
    """Run `work` in a thread and log the `progress` that it reports. Returns its result."""
    started = asyncio.get_running_loop().time()
    task = awaited(executor.run(work))
    while not (await asyncio.wait([task], timeout=PROGRESS_SECONDS))[0]:
        _log.info("recovering: %s", progress)
    if progress.logs_recovered_total:
        _log.info(
            "recovered %s in %.1f s: %s scanned, %s cut into %s",
            count_text(progress.logs_recovered_total, "log"),
            asyncio.get_running_loop().time() - started,
            count_text(progress.bytes_scanned_total, "byte"),
            count_text(progress.bytes_cut_total, "byte"),
            count_text(progress.files_cut_total, "file"),
        )
    return task.result()
