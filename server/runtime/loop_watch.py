"""Detects stalls of the event loop: their length, their CPU time and the API that causes them.

    loop     beat ---- beat ---- (a request computes for 300 ms) ---- beat, 280 ms late
    thread        look      look      look: the beat is overdue; where is the loop's thread?

A beat on the loop is due every `BEAT_SECONDS`; a late beat measures a stall. A thread regularly checks
whether a beat is overdue. If so, it reads the stack of the loop's thread, which names the handler and
the line. So watching costs the requests nothing. If the stalled code holds the interpreter
lock, the thread reads the stack when that code releases the lock, while its caller is still on it.

A stall is measured from the moment when the beat was due, so it is at most `BEAT_SECONDS` too short.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from types import FrameType

from metrics.facts import LoopFacts, LoopStall
from protocol.wire.api_keys import APIS
from server.runtime.tasks import call_later
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.runtime.loop_watch")

BEAT_SECONDS = 0.02
OVERDUE_SECONDS = 0.03
"""How late a beat must be before the thread reads the stack."""
LOOK_SECONDS = 0.05
LONG_SECONDS = 0.1
"""Stalls of at least this length are counted and logged."""
WINDOW_SECONDS = 60.0
"""Metrics show the longest stall of the current and of the previous window."""
SHARE_SAMPLES = 13
SHARE_SECONDS = 5.0
"""The loop's CPU share covers the last minute: 13 samples, 5 seconds apart."""

OTHER = "other"
"""The API of a stall without a request: a timer, a background task, HTTP."""
OUR_PACKAGES = ("server", "protocol", "storage", "cleaner", "metrics")
REQUEST_MODULES = ("server.handlers.", "protocol.messages.", "server.shortcut.")
_NAMES_BY_MODULE = {api.key.name.lower(): api.name for api in APIS.values()}


@loop_thread
class LoopWatch:
    """Watches the event loop on which it was created."""

    __slots__ = (
        "_beat_at", "_cpu_at_beat", "_due_s", "_longest", "_longest_before", "_loop", "_samples",
        "_seen", "_stalls_by_api", "_stopping", "_thread", "_watched_id", "_window_ends_s",
    )  # fmt: skip

    def __init__(self) -> None:
        # Constant after construction
        self._watched_id = threading.get_ident()
        self._stopping = threading.Event()
        # State, of the loop's thread
        now, cpu = time.perf_counter(), time.thread_time()
        self._cpu_at_beat = cpu
        self._due_s = now + BEAT_SECONDS
        self._longest = LoopStall()
        self._longest_before = LoopStall()
        self._window_ends_s = now + WINDOW_SECONDS
        self._stalls_by_api: dict[str, int] = {}
        self._samples: deque[tuple[float, float]] = deque([(now, cpu)], maxlen=SHARE_SAMPLES)
        self._beat_at = call_later(BEAT_SECONDS, "loop watch", self._beat)
        # State, of the watching thread: (due time of the overdue beat, API, place in the code).
        self._seen: tuple[float, str, str] | None = None
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching and join the thread."""
        self._beat_at.cancel()
        self._stopping.set()
        self._thread.join()

    @any_thread
    def facts(self) -> LoopFacts:
        """Returns the values for the metrics."""
        now, cpu = self._due_s, self._cpu_at_beat
        before, cpu_before = self._samples[0]
        busy = min((cpu - cpu_before) / (now - before), 1.0) if now > before else 0.0
        return LoopFacts(
            busy_seconds=cpu,
            idle_share=1.0 - busy,
            longest_stall=max(self._longest, self._longest_before, key=lambda each: each.seconds),
            stalls_by_api=dict(self._stalls_by_api),
        )

    # On the loop.

    def _beat(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        late_s = now - self._due_s
        if late_s >= OVERDUE_SECONDS:
            self._record_stall(late_s, min(cpu - self._cpu_at_beat, late_s))
        if now >= self._window_ends_s:
            self._longest_before, self._longest = self._longest, LoopStall()
            self._window_ends_s = now + WINDOW_SECONDS
        if now - self._samples[-1][0] >= SHARE_SECONDS:
            self._samples.append((now, cpu))
        self._cpu_at_beat = cpu
        self._due_s = now + BEAT_SECONDS
        self._beat_at = call_later(BEAT_SECONDS, "loop watch", self._beat)

    def _record_stall(self, seconds: float, cpu_seconds: float) -> None:
        seen = self._seen
        api, place = seen[1:] if seen is not None and seen[0] == self._due_s else (OTHER, "")
        if seconds > self._longest.seconds:
            self._longest = LoopStall(seconds=seconds, cpu_seconds=cpu_seconds, api=api)
        if seconds >= LONG_SECONDS:
            self._stalls_by_api[api] = self._stalls_by_api.get(api, 0) + 1
            _log.warning(
                "the event loop was held for %.0f ms (%.0f ms CPU) by %s%s",
                seconds * 1000,
                cpu_seconds * 1000,
                api,
                f", at {place}" if place else "",
            )

    # In the watching thread.

    @any_thread
    def _look(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            due_s = self._due_s
            is_seen = self._seen is not None and self._seen[0] == due_s
            if not is_seen and time.perf_counter() - due_s >= OVERDUE_SECONDS:
                frame = sys._current_frames().get(self._watched_id)
                self._seen = (due_s, *where(frame))


def where(frame: FrameType | None) -> tuple[str, str]:
    """Returns the API that a stack serves and its innermost line in our code: "module:line function"."""
    api, place = OTHER, ""
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if not place and module.partition(".")[0] in OUR_PACKAGES:
            place = f"{module}:{frame.f_lineno} {frame.f_code.co_name}"
        if api == OTHER and module.startswith(REQUEST_MODULES):
            api = _NAMES_BY_MODULE.get(module.rpartition(".")[2], OTHER)
        frame = frame.f_back
    return api, place
