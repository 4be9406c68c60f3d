"""`kompakt pipeline table stream` in its own process, which tests kill while it works."""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.harness.broker_process import CHECKOUT

STEP_SECONDS_MAX = 240.0
OFFSETS_PER_BATCH = 2000
"""Far more than are written during a micro-batch on a busy machine. While a driver is behind, the
records of its batches may all be superseded and gone; then it commits nothing."""


class Victim(enum.Enum):
    """The part of a driver that is killed."""

    PYTHON = "python"
    JVM = "jvm"
    BOTH = "both"


class TableDriver:
    """A stream that runs until it is killed; its table may be read meanwhile."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        table: Path,
        log: Path,
        *,
        options: Sequence[str] = (),
        offsets_per_batch: int = OFFSETS_PER_BATCH,
        commits: Path | None = None,
    ) -> None:
        """The table is that of `options` if they name one; then `commits` is the folder in which each
        commit adds a JSON file. Without them it is the Delta table at `table`."""
        # Constant after construction.
        place = () if "--table" in options else ("--table", str(table))
        pace = ("--every", "100 milliseconds", "--offsets-per-batch", str(offsets_per_batch))
        self._arguments = ("-b", bootstrap, "--topic", topic, *place, *options, *pace)
        self._commits = commits or table / "_delta_log"
        self._log = log
        # State.
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill(Victim.BOTH)

    def start(self) -> None:
        """Start to follow the topic in small micro-batches."""
        assert self._process is None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command(*self._arguments),
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for_commits(self, count: int) -> None:
        """Wait until its table has `count` more versions than now."""
        wanted = self.versions() + count
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while self.versions() < wanted:
            assert self._process is not None
            assert self._process.poll() is None, f"the driver ended: {self.tail()}"
            assert time.monotonic() < deadline, f"the driver hangs: {self.tail()}"
            time.sleep(0.01)

    def versions(self) -> int:
        return len(list(self._commits.glob("*.json")))

    def kill(self, victim: Victim) -> None:
        """Send SIGKILL. The rest of the driver must end by itself."""
        assert self._process is not None
        group = self._process.pid
        if victim is Victim.BOTH:
            os.killpg(group, signal.SIGKILL)
        elif victim is Victim.PYTHON:
            self._process.kill()
        else:
            for process in java_processes(group):
                os.kill(process, signal.SIGKILL)
        self._process.wait(STEP_SECONDS_MAX)
        self._process = None
        wait_until_gone(group)

    def tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "cli", "pipeline", "table", "stream", *arguments]


def java_processes(group: int) -> list[int]:
    """Returns the Java processes of a process group."""
    return [
        process
        for process in processes_of(group)
        if "java" in Path(f"/proc/{process}/comm").read_text()
    ]


def processes_of(group: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may contain anything. After it come state, parent and process
            # group.
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # the process has ended
            continue
        if int(of_group) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


def wait_until_gone(group: int) -> None:
    """Wait until a process group is gone. A JVM whose Python process is gone ends by itself."""
    deadline = time.monotonic() + STEP_SECONDS_MAX
    while left := processes_of(group):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)
