"""The processes below one, from /proc: those that a test may kill."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

GONE_SECONDS_MAX = 30.0


def below(pid: int) -> dict[int, str]:
    """Returns the command lines of all descendants of a process, by pid."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(pid, []))
    for each in found:
        found += children.get(each, [])
    return {each: line for each in found if (line := _command_line(each))}


def kill(pid: int) -> None:
    """Send SIGKILL. Does nothing if the process is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_until_gone(pids: dict[int, str]) -> None:
    """Wait until none of these processes runs. Raises if one does not end."""
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while left := {pid: line for pid, line in pids.items() if _command_line(pid) == line}:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.05)


def _command_line(pid: int) -> str:
    """Returns the command line; empty for a process that is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
