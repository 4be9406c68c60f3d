"""What `kompakt doctor` makes of what it saw: findings, each with what to do. Pure."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleaner.text import size_text
from server.addresses import Listener

DESCRIPTORS_MIN, DESCRIPTORS_GOOD = 1024, 10_000
FREE_BYTES_MIN = 64 << 20
FREE_SHARE_GOOD = 0.10
FREE_BYTES_GOOD = 10 << 30
SYNC_SECONDS_SLOW = 0.020
SYNC_SECONDS_TOO_FAST = 0.000_030
"""No disk answers so fast; somebody between us and it does."""
FUTURE_SECONDS_MAX = 60.0
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}
REMOTE_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}
LOOPBACK = ("localhost", "127.", "::1")


class Status(enum.Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and somebody will be sorry."""
    FAULT = "fault"
    """The broker does not start, or nobody reaches it, or data is at risk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    status: Status
    text: str
    remedy: str = ""
    """What to do; nothing for what is ok."""


def fine(check: str, text: str) -> Finding:
    """What is as it should be."""
    return Finding(check=check, status=Status.OK, text=text)


def warning(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, status=Status.WARNING, text=text, remedy=remedy)


def fault(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, status=Status.FAULT, text=text, remedy=remedy)


def judge_descriptors(limit: int) -> Finding:
    """How many files and connections the process may have."""
    remedy = (
        "raise it: ulimit -Hn 100000, LimitNOFILE=100000 in a systemd unit, or --ulimit of docker"
    )
    text = f"files and connections: at most {limit:,}"
    if limit < DESCRIPTORS_MIN:
        return fault("descriptors", text, remedy)
    if limit < DESCRIPTORS_GOOD:
        return warning("descriptors", f"{text}; segments are then opened again and again", remedy)
    return fine("descriptors", text)


def judge_space(path: str, *, free: int, total: int) -> Finding:
    """How much room a log directory has."""
    text = f"{path} has {size_text(free)} free of {size_text(total)}"
    remedy = (
        "make room, or bound topics with retention.bytes; log.cleaner.disk.pressure.free.bytes lets"
        " the cleaner hurry while a disk has less"
    )
    if free < FREE_BYTES_MIN:
        return fault("free space", text, remedy)
    if free < min(total * FREE_SHARE_GOOD, FREE_BYTES_GOOD):
        return warning("free space", text, remedy)
    return fine("free space", text)


def judge_file_system(path: str, kind: str) -> Finding:
    """What a log directory is kept by."""
    text = f"{path} is on {kind}"
    if kind in MEMORY_FILE_SYSTEMS:
        return warning(
            "file system", f"{text}: it is gone with the machine's memory", "put log.dirs on a disk"
        )
    if kind in REMOTE_FILE_SYSTEMS:
        return warning(
            "file system",
            f"{text}: locks and syncs may not mean what they say",
            "put log.dirs on a disk of this machine, or on a block device",
        )
    return fine("file system", text)


def judge_syncs(path: str, seconds: Sequence[float], kind: str) -> Finding:
    """How long an acknowledged record takes at least."""
    median, worst = statistics.median(seconds), max(seconds)
    text = f"{path} syncs 4 KiB in {median * 1000:.2f} ms (median), {worst * 1000:.1f} ms (worst)"
    if kind in MEMORY_FILE_SYSTEMS:
        return fine("sync", text)
    if median > SYNC_SECONDS_SLOW:
        return warning(
            "sync",
            f"{text}: acks=all waits for that",
            "use a disk with power loss protection, or flush.on.acks.all=false if records may be lost",
        )
    if median < SYNC_SECONDS_TOO_FAST:
        return warning(
            "sync",
            f"{text}: no disk is so fast",
            "see that nothing swallows syncs (eatmydata, a virtual disk with cache=unsafe)",
        )
    return fine("sync", text)


def judge_clock(*, is_kept: bool | None, newest_data_ahead_seconds: float) -> Finding:
    """Whether times can be believed: retention and lags count with them."""
    if newest_data_ahead_seconds > FUTURE_SECONDS_MAX:
        return fault(
            "clock",
            f"the data directory was written {newest_data_ahead_seconds:.0f} s in the future: the"
            " clock stands wrong, or stood",
            "set the clock before the broker starts: retention and delete horizons count with it",
        )
    if is_kept is False:
        return warning(
            "clock",
            "the kernel says that nothing keeps it right",
            "run chrony or systemd-timesyncd on the host",
        )
    return fine("clock", "kept right" if is_kept else "nothing is wrong that can be seen from here")


def judge_memory(*, wanted: int, available: int) -> Finding:
    """Whether the cleaner's map fits."""
    text = f"{size_text(available)} available, the cleaner may take {size_text(wanted)}"
    if wanted > available:
        return warning(
            "memory", text, "lower log.cleaner.dedupe.buffer.size, or give the machine more"
        )
    return fine("memory", text)


def judge_advertised(
    listener: Listener, *, is_container: bool, host_name: str, addresses: Iterable[str] | None
) -> Finding:
    """Whether clients can get where they are told to go.

    Args:
        addresses: what the advertised host stands for here; None: the name is not known.
    """
    check, told = "listener", listener.advertised
    text = f"clients of {told.name} are told {told.host}:{told.port or 'the port that it gets'}"
    remedy = "set advertised.listeners to a name or address that clients reach this machine by"
    if addresses is None:
        return fault(check, f"{text}, a name that nobody here knows", remedy)
    is_loopback = all(_is_loopback(address) for address in (told.host, *addresses))
    is_open = not _is_loopback(listener.bind.host)
    if is_loopback and is_open and is_container:
        return warning(
            check,
            f"{text}: only clients on the host itself, through a published port, get there",
            f"{remedy}; other containers need a listener of their own",
        )
    if is_loopback and is_open:
        return warning(check, f"{text}: clients on other machines would go to themselves", remedy)
    if is_container and told.host == host_name:
        return warning(check, f"{text}: the container's own name, unknown outside", remedy)
    return fine(check, text)


def _is_loopback(host: str) -> bool:
    return host.startswith(LOOPBACK)
