"""Says each warning once a minute: a client that repeats itself must not fill the disk with our log."""

from __future__ import annotations

import logging
from collections import OrderedDict

from cleaner.text import count_text
from server.clock import Clock

INTERVAL_SECONDS = 60.0
TEXTS_MAX = 1000
"""So many different warnings are remembered; beyond that the oldest may be said again early."""


class SparingLog:
    """A logger that counts what it has just said instead of saying it again. The loop's thread."""

    __slots__ = ("_clock", "_log", "_said")

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        # What was said: when, and how often it was kept back since.
        self._said: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def say(
        self, who: object, text: str, detail: str = "", *, mistake: Exception | None = None
    ) -> None:
        """Warn of what happened to `who`, unless the same happened within the last minute.

        Args:
            detail: of this case; cases that differ in it alone are the same.
            mistake: what only an error of ours can have raised; it is shown with its traceback.
        """
        now = self._clock.monotonic()
        said_at, kept_back = self._said.get(text, (-INTERVAL_SECONDS, 0))
        if now - said_at < INTERVAL_SECONDS:
            self._said[text] = (said_at, kept_back + 1)
            return
        more = (
            f" (and {count_text(kept_back, 'time')} more since it was last said)"
            if kept_back
            else ""
        )
        level = logging.WARNING if mistake is None else logging.ERROR
        self._log.log(level, "%s: %s%s%s", who, text, detail, more, exc_info=mistake)
        self._said[text] = (now, 0)
        self._said.move_to_end(text)
        if len(self._said) > TEXTS_MAX:
            self._said.popitem(last=False)
