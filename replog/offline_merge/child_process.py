"""The child as its parent sees it: started, waited for, logged, killed.

It is a new interpreter, never a fork of this one: a fork would copy most of the state's pages, because
reference counts are written when objects are only read. It inherits no descriptors except three: its
input ends when the parent does, its output is nothing, and the lines of its errors are logged.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from time import monotonic
from typing import IO

from replog.offline_merge.plan import MergePlan

_log = logging.getLogger("replog.offline_merge")

WAIT_SECONDS = 0.1
"""How long one step waits at most."""
KILLED_SECONDS = 10.0
"""How long a killed process may take to end: it may be waiting for a disk."""
ERROR_BYTES_MAX = 16 << 10
"""What is kept of the child's errors; the rest is dropped."""


class MergeProcess:
    """One child. One thread at a time, except for `kill`."""

    __slots__ = ("_deadline", "_error_bytes", "_is_late", "_process", "_seconds")

    def __init__(self, plan: MergePlan, seconds: float) -> None:
        """Start the child, which may take so many seconds. Raises OSError."""
        # Constant after construction
        self._seconds = seconds
        self._deadline = monotonic() + seconds
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            child_command(plan),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            close_fds=True,
            # The terminal's Ctrl-C reaches the parent, which ends it.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        # State
        self._error_bytes = b""
        self._is_late = False

    def step(self) -> bool:
        """Wait a moment. Returns whether the child is still working."""
        self._read_errors()
        if self._process.poll() is not None:
            self._log_errors()
            return False
        if monotonic() > self._deadline:
            self._is_late = True
            self.kill()
        return True

    def failure(self) -> str | None:
        """Returns why the child has failed; None if it has not."""
        status = self._process.returncode
        if self._is_late:
            return f"the child process was killed after {self._seconds:.0f} s"
        if status < 0:
            return f"the child process was ended by signal {-status}"
        return f"the child process ended with status {status}" if status else None

    def kill(self) -> None:
        """End the child at once. Any thread may call."""
        self._process.kill()

    def close(self) -> None:
        """Kill the child if it is still there, and wait until it has ended."""
        process = self._process
        if process.poll() is None:
            process.kill()
        try:
            process.wait(KILLED_SECONDS)
        except subprocess.TimeoutExpired:
            _log.warning("the child process %d was killed and has not ended", process.pid)
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                pipe.close()

    def _read_errors(self) -> None:
        """Wait until the child has written errors or has ended, and keep their beginning."""
        pipe = self._process.stderr
        assert pipe is not None
        poll = select.poll()
        poll.register(pipe.fileno(), select.POLLIN)
        if not poll.poll(WAIT_SECONDS * 1000) or self._keep(pipe):
            return
        try:
            # Its end of the pipe is closed: it ends, or it has closed it and continues.
            self._process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            return

    def _keep(self, pipe: IO[bytes]) -> bool:
        """Keep what can be read now. Returns whether there was something."""
        try:
            data = os.read(pipe.fileno(), ERROR_BYTES_MAX)
        except BlockingIOError:
            return False
        self._error_bytes = (self._error_bytes + data)[:ERROR_BYTES_MAX]
        return bool(data)

    def _log_errors(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None
        while len(self._error_bytes) < ERROR_BYTES_MAX and self._keep(pipe):
            pass
        for line in self._error_bytes.decode(errors="replace").splitlines():
            _log.warning("child process %d: %s", self._process.pid, line)


def child_command(plan: MergePlan) -> list[str]:
    """Returns the command of a child."""
    # -P: nothing is imported from the working directory.
    return [sys.executable, "-P", "-m", "replog.offline_merge.child", plan.to_json()]
