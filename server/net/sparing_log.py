"""Logs each warning once a minute, so that a client cannot fill the disk with the broker's log."""

from __future__ import annotations

import logging
from collections import OrderedDict

from cleaner.rules.text import count_text
from server.runtime.clock import Clock
from storage.threads import loop_thread

INTERVAL_SECONDS = 60.0
TEXTS_MAX = 1000
"""How many different warnings are remembered; beyond that the oldest may be logged again early."""


@loop_thread
class SparingLog:
    """A logger that counts repeated warnings instead of logging them."""

    __slots__ = ("_clock", "_log", "_recent")

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        # For each warning: when it was logged last, and how often it was suppressed since.
        self._recent: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def say(
        self, who: object, text: str, detail: str = "", *, mistake: Exception | None = None
    ) -> None:
        """Log a warning about `who`, unless the same text was logged within the last minute.

        Args:
            detail: details of this case; they are not compared.
            mistake: an exception that only a bug can raise; logged as an error with its traceback.
        """
        now = self._clock.monotonic()
        logged_at, suppressed = self._recent.get(text, (-INTERVAL_SECONDS, 0))
        if now - logged_at < INTERVAL_SECONDS:
            self._recent[text] = (logged_at, suppressed + 1)
            return
        more = (
            f" (and {count_text(suppressed, 'time')} more since it was last logged)"
            if suppressed
            else ""
        )
        level = logging.WARNING if mistake is None else logging.ERROR
        self._log.log(level, "%s: %s%s%s", who, text, detail, more, exc_info=mistake)
        self._recent[text] = (now, 0)
        self._recent.move_to_end(text)
        if len(self._recent) > TEXTS_MAX:
            self._recent.popitem(last=False)
