"""Formats sizes, durations and moments for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def size_text(count: float) -> str:
    """Returns a number of bytes with a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration_text(seconds: float) -> str:
    """Returns a duration in seconds with a unit."""
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.001 else "< 1 ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def moment_text(ms: int) -> str:
    """Returns a wall time in ms, rounded down to the second, in UTC."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return f"{ms} ms after 1970"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Returns a count with its noun in the singular or plural: "1 segment", "12,000 segments"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
