"""Server processes under measurement: started, awaited, measured, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.connection import wait_until_listening

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STOP_SECONDS_MAX = 30


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def broker_command(port: int, data: Path, *overrides: str) -> list[str]:
    """The command line of a broker on `port` with its data in `data` and no HTTP endpoint."""
    settings = [
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"log.dirs={data}",
        "http.listener=",
        *overrides,
    ]
    command = [sys.executable, "-m", "server", "serve"]
    for setting in settings:
        command += ["--override", setting]
    return command


def null_broker_command(mode: str, port: int, path: Path) -> list[str]:
    return [sys.executable, "-m", "bench.null_broker", mode, str(port), str(path)]


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[int]:
    """Start `command`, wait until it listens on `port`, give its process id, stop it at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until_listening(port)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
