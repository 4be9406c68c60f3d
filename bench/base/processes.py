"""Server processes under measurement: started, awaited, measured, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bench.base.connection import is_listening_within

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CPUCLOCK_SCHED = 2
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 30
STDERR_LINES_SHOWN = 20
REPOSITORY = Path(__file__).parents[2]
NODE_ID = "1"
"""Of a broker that sets no `node.id`."""


class StartFailed(Exception):
    """A server did not start. The message ends with its output."""


_given: set[int] = set()


def free_port() -> int:
    """Returns an unused port that was not returned before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port


def broker_command(
    port: int, data: Path, *overrides: str, python: str = sys.executable
) -> list[str]:
    """Returns the command line of a broker on `port` with its data in `data` and no HTTP endpoint.

    `python` is that of its environment.
    """
    settings = [
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"log.dirs={data}",
        "http.listener=",
        *overrides,
    ]
    command = [python, "-m", "cli", "serve"]
    for setting in settings:
        command += ["--override", setting]
    return command


def null_broker_command(mode: str, port: int, path: Path, *arguments: int | Path) -> list[str]:
    """Returns the command line of a null broker (`bench/base/null_broker.py`) that uses `path`."""
    command = [sys.executable, "-m", "bench.base.null_broker", mode, str(port), str(path)]
    return command + [str(each) for each in arguments]


@contextmanager
def running(
    command: Sequence[str],
    port: int,
    *,
    folder: Path = REPOSITORY,
    start_seconds_max: float = START_SECONDS_MAX,
) -> Iterator[int]:
    """Start `command`, wait until it listens on `port`, yield its process id, stop it at the end.

    It runs in `folder`, the checkout whose code a broker has.

    Raises:
        StartFailed: it ended, or did not listen in time.
    """
    # A file, because nothing reads a pipe while the server runs.
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(), stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            if not is_listening_within(start_seconds_max, port, lambda: process.poll() is None):
                raise StartFailed(_failure(command, port, process, errors))
            yield process.pid
        finally:
            _stop(process)


def _environment() -> dict[str, str]:
    """Returns ours, with cached bytecode: else a start would compile every source file once more."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _failure(
    command: Sequence[str], port: int, process: subprocess.Popen[bytes], errors: IO[str]
) -> str:
    code = process.poll()
    what = "is up, but does not listen" if code is None else f"ended with code {code}"
    errors.seek(0)
    said = "".join(errors.readlines()[-STDERR_LINES_SHOWN:]) or "(nothing on stderr)"
    return f"{' '.join(command)}: {what} on port {port}\n{said}"


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def cpu_seconds(pid: int) -> float:
    """Returns the user and system time of a process; in nanoseconds, while /proc has hundredths.

    Source: clock_getcpuclockid(3), and CPUCLOCK_SCHED of Linux.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def tree_cpu_seconds(pid: int) -> float:
    """Returns the same for a process and all its descendants, including ended ones."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            below.setdefault(int(fields[1]), []).append(int(stat.parent.name))
            ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    found = [pid]
    for each in found:
        found += below.get(each, [])
    return sum(ticks.get(each, 0) for each in found) / TICKS_PER_SECOND
