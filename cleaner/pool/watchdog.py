"""Reports tasks that make no progress: a disk that does not answer, or a bug.

A pass calls its meter for each chunk, and at least five times a second while it sleeps for the throttle.
One that has not done so for `log.cleaner.stalled.ms` is reported once, with the stack of its thread. It
is not stopped: nothing can end a thread that waits for a disk. A stop, or `kompakt compact cancel`, ends
it as soon as it continues.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback

from cleaner.pacing.probe import CleanerProbe
from cleaner.pool.runner import Runner, RunningPass
from cleaner.pool.status import Task
from cleaner.rules.text import duration_text
from storage.threads import any_thread, loop_thread

LOOK_SECONDS = 10.0
"""How often the watchdog looks; running passes follow their topics' settings as often."""

PASSES = frozenset({Task.CLEAN, Task.LEASE})
"""The tasks that are passes. The others rewrite nothing: they read, and a sweep appends tombstones."""

# The pool's logger: operators know the log lines of passes by that name.
_log = logging.getLogger("cleaner.pool.pool")


@loop_thread
class Watchdog:
    """Watches the tasks of a runner."""

    __slots__ = ("_probe", "_reported", "_runner", "_task")

    def __init__(self, runner: Runner, probe: CleanerProbe) -> None:
        # Constant after construction.
        self._runner = runner
        self._probe = probe
        # State.
        self._reported: set[RunningPass] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    @any_thread
    def stalled(self) -> tuple[RunningPass, ...]:
        """The tasks that make no progress now."""
        limit = self._runner.settings.stalled_ms / 1000
        return tuple(
            each
            for each in self._runner.tasks
            if each.thread_id is not None and each.progress.snapshot().stalled_seconds >= limit
        )

    def start(self) -> None:
        """Look every few seconds, until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="watchdog")

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    def look(self) -> None:
        """Report each task that has stalled since the last look."""
        stalled = set(self.stalled)
        for task in stalled - self._reported:
            self._report(task)
        self._reported = stalled

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self.look()
                self._runner.follow_topics()
            except Exception:  # noqa: BLE001 - it watches on after any error
                _log.exception("the watchdog failed; it continues")

    def _report(self, task: RunningPass) -> None:
        partition, progress = task.log.topic_partition, task.progress.snapshot()
        _log.error(
            "%s: the task %s has made no progress for %s, in phase %s; its thread is at\n%s",
            partition,
            task.task.value,
            duration_text(progress.stalled_seconds),
            progress.phase.value,
            stack_of(task.thread_id),
        )
        if task.task in PASSES:
            seconds, phase = progress.stalled_seconds, progress.phase.value
            self._probe.stalled(partition.topic, partition.partition, seconds, phase)


def stack_of(thread_id: int | None) -> str:
    """Returns the stack of a thread, innermost call last; a note if it has ended."""
    frame = None if thread_id is None else sys._current_frames().get(thread_id)
    return "".join(traceback.format_stack(frame)) if frame else "(the thread has ended)"
