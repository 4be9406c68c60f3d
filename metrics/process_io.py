"""Reads the kernel's count of this process's disk I/O (proc(5), /proc/pid/io)."""

from __future__ import annotations

from pathlib import Path

PROC_IO = Path("/proc/self/io")


def disk_bytes(path: Path = PROC_IO) -> tuple[int, int] | None:
    """Returns bytes read from and written to disks; None if the kernel has no counts. Any thread."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError:
        return None
    counts = dict(line.split(": ", 1) for line in lines)
    return int(counts["read_bytes"]), int(counts["write_bytes"])
