"""Collects the calls in wrong threads that `storage/threads.py` logs; a broad `except` may hide them."""

from __future__ import annotations

import logging

WRONG_THREAD = "but its object belongs to the thread"
"""Part of the logged text, to find it in the log of a broker in another process."""


class WrongCalls(logging.Handler):
    """The logged calls since the last `take`. Calls come from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())

    def take(self) -> list[str]:
        """Returns the texts, and forgets them."""
        texts, self._texts = self._texts, []
        return texts


WRONG_CALLS = WrongCalls()
logging.getLogger("storage.threads").addHandler(WRONG_CALLS)
