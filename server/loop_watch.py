"""Finds out what holds the event loop: how long, with how much of the processor, and which API.

    loop     beat ---- beat ---- (a request computes for 300 ms) ---- beat, 280 ms late
    thread        look      look      look: the beat is overdue; where is the loop's thread?

A beat on the loop is due every `BEAT_SECONDS`; one that comes late measures a stall. A thread looks
now and then whether a beat is overdue, and if so, what the loop's thread executes at that moment: its
stack names the handler and the line. So a request costs nothing for being watched. Code that keeps
the interpreter lock is seen as soon as it lets go of it, while its caller is still on the stack.

A stall is measured from the moment at which a beat was due, so it is `BEAT_SECONDS` too short at most.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from types import FrameType

from metrics.facts import LoopFacts, LoopStall
from protocol.api_keys import APIS
from server.tasks import call_later

_log = logging.getLogger("server.loop_watch")

BEAT_SECONDS = 0.02
OVERDUE_SECONDS = 0.03
"""A beat that is so late is worth a look at the stack."""
LOOK_SECONDS = 0.05
LONG_SECONDS = 0.1
"""Stalls from here on are counted and logged."""
WINDOW_SECONDS = 60.0
"""The longest stall of this window and of the one before is shown."""
SHARE_SAMPLES = 13
SHARE_SECONDS = 5.0
"""The processor's share is that of the last minute: 13 samples, 5 seconds apart."""

OTHER = "other"
"""What holds the loop without a request: a timer, a background task, HTTP."""
OURS = ("server", "protocol", "storage", "cleaner", "metrics")
REQUEST_MODULES = ("server.handlers.", "protocol.messages.")
_NAMES_BY_MODULE = {api.key.name.lower(): api.name for api in APIS.values()}


class LoopWatch:
    """Watches the loop that it is started on."""

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
        # State, of the looking thread: what it saw, and of which beat.
        self._seen: tuple[float, str, str] | None = None
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer. On the loop."""
        self._beat_at.cancel()
        self._stopping.set()
        self._thread.join()

    def facts(self) -> LoopFacts:
        """What a scrape shows. Any thread."""
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
            self._stalled(late_s, min(cpu - self._cpu_at_beat, late_s))
        if now >= self._window_ends_s:
            self._longest_before, self._longest = self._longest, LoopStall()
            self._window_ends_s = now + WINDOW_SECONDS
        if now - self._samples[-1][0] >= SHARE_SECONDS:
            self._samples.append((now, cpu))
        self._cpu_at_beat = cpu
        self._due_s = now + BEAT_SECONDS
        self._beat_at = call_later(BEAT_SECONDS, "loop watch", self._beat)

    def _stalled(self, seconds: float, cpu_seconds: float) -> None:
        seen = self._seen
        api, place = seen[1:] if seen is not None and seen[0] == self._due_s else (OTHER, "")
        if seconds > self._longest.seconds:
            self._longest = LoopStall(seconds=seconds, cpu_seconds=cpu_seconds, api=api)
        if seconds >= LONG_SECONDS:
            self._stalls_by_api[api] = self._stalls_by_api.get(api, 0) + 1
            _log.warning(
                "the loop was held for %.0f ms (%.0f ms of the processor) by %s%s",
                seconds * 1000,
                cpu_seconds * 1000,
                api,
                f", at {place}" if place else "",
            )

    # In the thread that looks.

    def _look(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            due_s = self._due_s
            is_seen = self._seen is not None and self._seen[0] == due_s
            if not is_seen and time.perf_counter() - due_s >= OVERDUE_SECONDS:
                frame = sys._current_frames().get(self._watched_id)
                self._seen = (due_s, *where(frame))


def where(frame: FrameType | None) -> tuple[str, str]:
    """The API that a stack works for, and its innermost line of ours: "module:line function"."""
    api, place = OTHER, ""
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if not place and module.partition(".")[0] in OURS:
            place = f"{module}:{frame.f_lineno} {frame.f_code.co_name}"
        if api == OTHER and module.startswith(REQUEST_MODULES):
            api = _NAMES_BY_MODULE.get(module.rpartition(".")[2], OTHER)
        frame = frame.f_back
    return api, place
