"""Measures this machine for `kompakt doctor`: disks, clock, memory, names. Leaves no files behind."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import shutil
import socket
import tempfile
import time
from pathlib import Path

from storage.files.paths import LOCK

SYNCS = 32
SYNC_BYTES = 4096
STA_UNSYNC = 0x40
"""The clock is not synchronised. Source: adjtimex(2)."""
TIMEX_BYTES, TIMEX_STATUS_AT = 512, 40
"""For struct timex on 64-bit Linux: more than its size, and the position of `status`."""
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


def descriptor_limit() -> int:
    """Returns the hard limit on open files, to which a broker raises its limit at startup."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def existing_part(path: str) -> Path:
    """Returns the path, or its nearest parent directory that exists."""
    found = Path(path).absolute()
    while not found.exists():
        found = found.parent
    return found


def is_locked(path: str) -> bool:
    """Returns whether a broker uses the directory: it holds an flock on `.lock` while it runs.

    Takes a shared lock for a moment, so two doctors do not disturb each other.
    """
    try:
        descriptor = os.open(Path(path) / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(descriptor)
    return False


def space(path: Path) -> tuple[int, int]:
    """Returns the free and the total bytes of the volume. Raises OSError."""
    usage = shutil.disk_usage(path)
    return usage.free, usage.total


def file_system(path: Path) -> str:
    """Returns the type of the file system that holds a path, or `unknown`."""
    best, kind = -1, "unknown"
    target = str(path.resolve())
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    # The longest mount point that contains the path.
    for line in mounts:
        _, point, found, *_ = line.split(" ")
        where = point.replace("\\040", " ").rstrip("/")
        if (target == where or target.startswith(where + "/")) and len(where) > best:
            best, kind = len(where), found
    return kind


def sync_seconds(path: Path) -> list[float]:
    """Returns the durations of small synced writes to a temporary file. Raises OSError."""
    found = []
    with tempfile.TemporaryFile(dir=path, prefix=".kompakt-doctor-") as file:
        for _ in range(SYNCS):
            file.write(bytes(SYNC_BYTES))
            file.flush()
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append(time.perf_counter() - start)
    return found


def is_clock_synchronised() -> bool | None:
    """Returns whether the kernel reports a synchronised clock; None if it cannot tell."""
    timex = ctypes.create_string_buffer(TIMEX_BYTES)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        return None
    if state < 0 or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    status = ctypes.c_int.from_buffer(timex, TIMEX_STATUS_AT).value
    return not status & STA_UNSYNC


def ahead_seconds(directory: str) -> float:
    """Returns how far in the future the newest file of a log directory was written; negative: past."""
    newest = 0.0
    for name in ("start-counter", "compaction-history", "meta.properties", ".clean-shutdown"):
        try:
            newest = max(newest, (Path(directory) / name).stat().st_mtime)
        except OSError:
            continue
    return newest - time.time()


def available_memory() -> int | None:
    """Returns the bytes of memory available to processes; None if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = dict(line.split(":", 1) for line in lines)
    text = sizes.get("MemAvailable", "").strip().removesuffix(" kB")
    return int(text) * 1024 if text.isdigit() else None


def is_container() -> bool:
    """Returns whether this process runs in a container."""
    return any(Path(mark).exists() for mark in CONTAINER_MARKS)


def addresses_of(host: str) -> list[str] | None:
    """Returns the addresses of a host name; None if it does not resolve."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return None
    return [str(each[4][0]) for each in found]


def bind_error(host: str, port: int) -> OSError | None:
    """Returns the error of listening on a port; None if it works."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error
    return None
