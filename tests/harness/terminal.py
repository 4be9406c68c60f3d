"""A terminal to which a program writes, and what it then shows."""

from __future__ import annotations

import os
import pty
import threading

SECONDS_MAX = 60


class Terminal:
    """Its program's end, `descriptor`, and all that is written to it. Safe for threads."""

    def __init__(self) -> None:
        self._ours, self.descriptor = pty.openpty()
        self._written = b""
        self._is_over = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str) -> None:
        """Wait until this has been written to it."""
        with self._changed:
            self._changed.wait_for(lambda: text in self.written() or self._is_over, SECONDS_MAX)
            assert text in self.written(), f"the terminal shows no {text!r}: {self.written()!r}"

    def written(self) -> str:
        """What has been written so far, control sequences too."""
        return self._written.decode(errors="replace")

    def text(self) -> str:
        """All that is written; waits until the last writer closes."""
        os.close(self.descriptor)
        self._reader.join(SECONDS_MAX)
        assert self._is_over, "somebody still has the terminal open"
        return self.written()

    def _read(self) -> None:
        while not self._is_over:
            try:
                chunk = os.read(self._ours, 65536)
            except OSError:
                # How Linux says that there is no writer left.
                chunk = b""
            with self._changed:
                self._written += chunk
                self._is_over = not chunk
                self._changed.notify_all()
        os.close(self._ours)
