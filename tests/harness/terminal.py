"""A pseudo-terminal that records what a program writes to it."""

from __future__ import annotations

import os
import pty
import threading

SECONDS_MAX = 300


class Terminal:
    """The program uses `descriptor`; all its output is recorded. Safe for threads."""

    def __init__(self) -> None:
        self._ours, self.descriptor = pty.openpty()
        self._written = b""
        self._is_over = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str) -> None:
        """Wait until this text has been written."""
        with self._changed:
            self._changed.wait_for(lambda: text in self.written() or self._is_over, SECONDS_MAX)
            assert text in self.written(), f"the terminal shows no {text!r}: {self.written()!r}"

    def written(self) -> str:
        """Returns what has been written so far, including control sequences."""
        return self._written.decode(errors="replace")

    def text(self) -> str:
        """Returns all output; waits until the last writer closes."""
        os.close(self.descriptor)
        self._reader.join(SECONDS_MAX)
        assert self._is_over, "a process still has the terminal open"
        return self.written()

    def _read(self) -> None:
        while not self._is_over:
            try:
                chunk = os.read(self._ours, 65536)
            except OSError:
                # Linux reports like this that no writer is left.
                chunk = b""
            with self._changed:
                self._written += chunk
                self._is_over = not chunk
                self._changed.notify_all()
        os.close(self._ours)
