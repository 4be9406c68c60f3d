"""What `kompakt doctor` looks at in this machine: disks, clock, memory, names. Leaves nothing behind."""

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

from storage.paths import LOCK

SYNCS = 32
SYNC_BYTES = 4096
STA_UNSYNC = 0x40
"""The clock is not synchronised. Source: adjtimex(2)."""
TIMEX_BYTES, TIMEX_STATUS_AT = 512, 40
"""Of struct timex on 64-bit Linux: more than its size, and where `status` is."""
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


def descriptor_limit() -> int:
    """The hard limit, which a broker takes at its start."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def existing_part(path: str) -> Path:
    """The path, or the nearest folder above it that is there."""
    found = Path(path).absolute()
    while not found.exists():
        found = found.parent
    return found


def is_locked(path: str) -> bool:
    """Whether a process has the directory: a broker holds an flock on its `.lock` as long as it runs.

    Taken for a moment and given back, shared: two doctors do not see each other.
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
    """Free and all bytes of the volume. Raises OSError."""
    usage = shutil.disk_usage(path)
    return usage.free, usage.total


def file_system(path: Path) -> str:
    """The kind of file system that holds a path; `unknown` where the system does not tell."""
    best, kind = -1, "unknown"
    target = str(path.resolve())
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in mounts:
        _, point, found, *_ = line.split(" ")
        where = point.replace("\\040", " ").rstrip("/")
        if (target == where or target.startswith(where + "/")) and len(where) > best:
            best, kind = len(where), found
    return kind


def sync_seconds(path: Path) -> list[float]:
    """How long each of some small synced writes takes, in a file that goes again. Raises OSError."""
    found = []
    with tempfile.TemporaryFile(dir=path, prefix=".kompakt-doctor-") as file:
        for _ in range(SYNCS):
            file.write(bytes(SYNC_BYTES))
            file.flush()
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append(time.perf_counter() - start)
    return found


def is_clock_kept() -> bool | None:
    """Whether the kernel knows that something keeps the clock right; None where it does not tell."""
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
    """How far in the future the newest file of a log directory was written; below 0: it was not."""
    newest = 0.0
    for name in ("start-counter", "compaction-history", "meta.properties", ".clean-shutdown"):
        try:
            newest = max(newest, (Path(directory) / name).stat().st_mtime)
        except OSError:
            continue
    return newest - time.time()


def available_memory() -> int | None:
    """Bytes that processes may still take; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = dict(line.split(":", 1) for line in lines)
    text = sizes.get("MemAvailable", "").strip().removesuffix(" kB")
    return int(text) * 1024 if text.isdigit() else None


def is_container() -> bool:
    """Whether this runs in a container."""
    return any(Path(mark).exists() for mark in CONTAINER_MARKS)


def addresses_of(host: str) -> list[str] | None:
    """What a name stands for; None if nobody knows it."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return None
    return [str(each[4][0]) for each in found]


def who_holds(host: str, port: int) -> OSError | None:
    """Why a port cannot be listened on; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error
    return None
