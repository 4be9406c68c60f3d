"""A process with `transaction_program.py` that is restarted whenever it has failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.forked_python import CLIENT_LIBRARIES, ForkedProgram, start_python
from tests.harness.transaction_history import Transaction, read_transactions
from tests.harness.transaction_java import transactions_command

SILENT_SECONDS_MAX = 15.0
STOP_SECONDS_MAX = 4.0
LAST_WORDS_SECONDS = 0.3
"""Time for a hanging program to print where it hangs."""
COMMIT = b"\ncommit\n"
COMMITTED = b"\ncommitted\n"


class ProgramProcess:
    """A program over all its runs."""

    def __init__(self, folder: Path, name: str, command: Callable[[int], list[str]]) -> None:
        # Constant after construction.
        self.name = name
        self._folder = folder
        self._command = command
        # State.
        self.lives = 0
        self.stalls = 0
        self._process: ForkedProgram | subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._zombies: list[ForkedProgram | subprocess.Popen[bytes]] = []
        self._heard = (0, 0.0)

    def start(self) -> None:
        """Start one more run."""
        with self._output(self.lives).open("wb") as output, self._errors().open("ab") as errors:
            self._process = start_python(
                self._command(self.lives), CLIENT_LIBRARIES, stdout=output, stderr=errors
            )
        self.lives += 1
        self._heard = (0, time.monotonic())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it and start it again, unless it has finished."""
        if not self.is_done():
            self.kill()
            self.start()

    def start_beside_itself(self) -> None:
        """Start one more run while the previous one continues: the broker must fence that."""
        if self._process is not None and not self.is_done():
            self._zombies.append(self._process)
            self.start()

    def abandon(self) -> None:
        """Kill it for good."""
        self.kill()
        self._is_over = True

    def tend(self) -> None:
        """Restart it if it has failed; if it was silent for too long, kill it first."""
        if self._process is None or self._is_over:
            return
        code = self._process.poll()
        if code is None and self._is_silent():
            self.stalls += 1
            self._process.send_signal(signal.SIGQUIT)
            time.sleep(LAST_WORDS_SECONDS)
            self.kill()
            self.start()
        elif code:
            self.start()

    def is_done(self) -> bool:
        """Returns whether it has ended normally."""
        return self._is_over or (self._process is not None and self._process.poll() == 0)

    def has_committed(self) -> bool:
        """Returns whether it has committed in this run."""
        return COMMITTED in self._output(self.lives - 1).read_bytes()

    def is_committing(self) -> bool:
        """Returns whether it has requested a commit and not reported the result."""
        with self._output(self.lives - 1).open("rb") as said:
            said.seek(0, os.SEEK_END)
            said.seek(max(0, said.tell() - len(COMMIT)))
            return said.read() == COMMIT

    def ask_to_end(self) -> None:
        """Send SIGTERM; it ends once no transaction is open."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Wait until it ends; kill it if it does not, which may leave a transaction open.

        It is not restarted after this, even if it has failed.
        """
        self._is_over = True
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        for zombie in self._zombies:
            zombie.kill()
            zombie.wait()

    def transactions(self) -> list[Transaction]:
        """Returns the transactions of all its runs."""
        lines: list[str] = []
        for life in range(self.lives):
            lines += self._output(life).read_text().splitlines(keepends=True)
        return read_transactions(self.name, lines)

    def complaints(self) -> str:
        return self._errors().read_text()[-3000:]

    def _is_silent(self) -> bool:
        size = self._output(self.lives - 1).stat().st_size
        if size != self._heard[0]:
            self._heard = (size, time.monotonic())
        return time.monotonic() > self._heard[1] + SILENT_SECONDS_MAX

    def _output(self, life: int) -> Path:
        return self._folder / f"{self.name}.{life}"

    def _errors(self) -> Path:
        return self._folder / f"{self.name}.err"


def program_command(client: str) -> list[str]:
    """Returns the command for a program, without the address and the settings."""
    if client.startswith("java-"):
        return transactions_command(client.removeprefix("java-"))
    return [sys.executable, "-m", "tests.harness.transaction_program", client]
