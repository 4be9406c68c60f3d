"""Judges what `kompakt doctor` measured: findings, each with a remedy. Pure."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cleaner.rules.harmful_settings import Harm, names_text, topics_by_harm
from cleaner.rules.text import count_text, size_text
from cli.doctor.coordinator_checkpoints import CoordinatorLoad
from replog.trigger import CompactionSettings
from server.config.listeners.addresses import Listener

DESCRIPTORS_MIN, DESCRIPTORS_GOOD = 1024, 10_000
FREE_BYTES_MIN = 64 << 20
FREE_SHARE_GOOD = 0.10
FREE_BYTES_GOOD = 10 << 30
SYNC_SECONDS_SLOW = 0.020
SYNC_SECONDS_TOO_FAST = 0.000_030
"""No disk syncs faster: a layer above it must be dropping the syncs."""
FUTURE_SECONDS_MAX = 60.0
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}
REMOTE_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}
LOOPBACK = ("localhost", "127.", "::1")


class Status(enum.Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """The broker works, but this is likely to cause trouble."""
    FAULT = "fault"
    """The broker does not start, clients cannot reach it, or data is at risk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    status: Status
    text: str
    remedy: str = ""
    """What to do. Empty if the status is OK."""


def fine(check: str, text: str) -> Finding:
    """Returns a finding without a problem."""
    return Finding(check=check, status=Status.OK, text=text)


def warning(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, status=Status.WARNING, text=text, remedy=remedy)


def fault(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, status=Status.FAULT, text=text, remedy=remedy)


def judge_topics(harms: Mapping[str, Sequence[Harm]]) -> Iterator[Finding]:
    """Judge the settings of all topics, given what each topic's do that no one can want."""
    by_harm = topics_by_harm(harms)
    for harm, names in by_harm.items():
        yield warning("topics", f"{names_text(names)}: {harm.text}", harm.remedy)
    if not by_harm:
        yield fine("topics", f"settings of {count_text(len(harms), 'topic')}: none does harm")


def judge_descriptors(limit: int) -> Finding:
    """Judge the limit on open files and connections of a process."""
    remedy = (
        "raise it: ulimit -Hn 100000, LimitNOFILE=100000 in a systemd unit, or --ulimit of docker"
    )
    text = f"files and connections: at most {limit:,}"
    if limit < DESCRIPTORS_MIN:
        return fault("descriptors", text, remedy)
    if limit < DESCRIPTORS_GOOD:
        return warning(
            "descriptors", f"{text}; the broker will close and reopen segments often", remedy
        )
    return fine("descriptors", text)


def judge_space(path: str, *, free: int, total: int) -> Finding:
    """Judge the free space of a log directory."""
    text = f"{path} has {size_text(free)} free of {size_text(total)}"
    remedy = (
        "free space, or limit topics with retention.bytes; below log.cleaner.disk.pressure.free.bytes"
        " the cleaner runs without limits"
    )
    if free < FREE_BYTES_MIN:
        return fault("free space", text, remedy)
    if free < min(total * FREE_SHARE_GOOD, FREE_BYTES_GOOD):
        return warning("free space", text, remedy)
    return fine("free space", text)


def judge_file_system(path: str, kind: str) -> Finding:
    """Judge the file system of a log directory."""
    text = f"{path} is on {kind}"
    if kind in MEMORY_FILE_SYSTEMS:
        return warning(
            "file system",
            f"{text}: a restart of the machine loses the data",
            "put log.dirs on a disk",
        )
    if kind in REMOTE_FILE_SYSTEMS:
        return warning(
            "file system",
            f"{text}: locks and syncs may not be reliable there",
            "put log.dirs on a local disk or a block device",
        )
    return fine("file system", text)


def judge_replog(
    path: str,
    *,
    log_bytes: int,
    snapshot_bytes: int,
    replay_ms: float,
    settings: CompactionSettings,
) -> Finding:
    """Judge how much of a state machine's log the next start replays."""
    text = (
        f"{path}: a snapshot of {size_text(snapshot_bytes)}, and {size_text(log_bytes)} of log that"
        f" are replayed in about {replay_ms:.0f} ms (replog.snapshot.u: {settings.u:g})"
    )
    if replay_ms > 10 * settings.replay_ms:
        return warning(
            "metadata",
            f"{text}, or to {settings.replay_ms:.0f} ms of replay",
            "look for errors about snapshots in the broker's log: a full disk, for example",
        )
    return fine("metadata", text)


def judge_coordinator(path: str, load: CoordinatorLoad, settings: CompactionSettings) -> Finding:
    """Judge how much of a coordinator's topic the next start reads beside its checkpoints."""
    text = f"{path}: {load.topic}: {count_text(load.checkpoints, 'checkpoint')}"
    if load.checkpoints:
        text += f" of {size_text(load.checkpoint_bytes)}, up to offset {load.end_offset_max}"
    text += (
        f"; after them {size_text(load.dirty_bytes)} that were not cleaned; the largest partition's"
        f" load in about {load.replay_ms_max:.0f} ms"
    )
    if load.replay_ms_max > 10 * settings.replay_ms:
        return warning(
            "coordinators",
            f"{text} (replog.replay.ms: {settings.replay_ms:.0f})",
            "look for errors about checkpoints and cleaning passes in the broker's log",
        )
    return fine("coordinators", text)


def judge_syncs(path: str, seconds: Sequence[float], kind: str) -> Finding:
    """Judge the durations of syncs, which bound the latency of an acknowledged record."""
    median, worst = statistics.median(seconds), max(seconds)
    text = f"{path} syncs 4 KiB in {median * 1000:.2f} ms (median), {worst * 1000:.1f} ms (worst)"
    if kind in MEMORY_FILE_SYSTEMS:
        return fine("sync", text)
    if median > SYNC_SECONDS_SLOW:
        return warning(
            "sync",
            f"{text}: every write with acks=all waits for a sync",
            "use a disk with power loss protection, or flush.on.acks.all=false if losing records is"
            " acceptable",
        )
    if median < SYNC_SECONDS_TOO_FAST:
        return warning(
            "sync",
            f"{text}: no disk is that fast",
            "check that nothing drops syncs (eatmydata, a virtual disk with cache=unsafe)",
        )
    return fine("sync", text)


def judge_clock(*, is_synchronised: bool | None, newest_data_ahead_seconds: float) -> Finding:
    """Judge the clock, on which retention and compaction lags depend.

    Args:
        is_synchronised: what the kernel reports; None: unknown.
    """
    if newest_data_ahead_seconds > FUTURE_SECONDS_MAX:
        return fault(
            "clock",
            f"the data directory was written {newest_data_ahead_seconds:.0f} s in the future: the"
            " clock is wrong, or was wrong then",
            "set the clock before the broker starts: retention and delete horizons depend on it",
        )
    if is_synchronised is False:
        return warning(
            "clock",
            "the kernel reports that the clock is not synchronised",
            "run chrony or systemd-timesyncd on the host",
        )
    return fine("clock", "synchronised" if is_synchronised else "no problem found")


def judge_memory(*, wanted: int, available: int) -> Finding:
    """Judge whether the cleaner's offset map fits into memory."""
    text = f"{size_text(available)} available, the cleaner may use {size_text(wanted)}"
    if wanted > available:
        return warning("memory", text, "lower log.cleaner.dedupe.buffer.size, or add memory")
    return fine("memory", text)


def judge_advertised(
    listener: Listener, *, is_container: bool, host_name: str, addresses: Iterable[str] | None
) -> Finding:
    """Judge whether clients can reach the advertised address of a listener.

    Args:
        addresses: the addresses to which the advertised host resolves here; None: it does not resolve.
    """
    check, advertised = "listener", listener.advertised
    port = advertised.port or "a port that the system chooses"
    text = f"clients of {advertised.name} are sent to {advertised.host}:{port}"
    remedy = "set advertised.listeners to a name or address at which clients reach this machine"
    if addresses is None:
        return fault(check, f"{text}, a name that does not resolve here", remedy)
    is_loopback = all(_is_loopback(address) for address in (advertised.host, *addresses))
    is_open = not _is_loopback(listener.bind.host)
    if is_loopback and is_open and is_container:
        return warning(
            check,
            f"{text}: only clients on the host itself can connect, through a published port",
            f"{remedy}; other containers need a separate listener",
        )
    if is_loopback and is_open:
        return warning(
            check, f"{text}: clients on other machines would connect to themselves", remedy
        )
    if is_container and advertised.host == host_name:
        return warning(check, f"{text}: the container's own name, unknown outside", remedy)
    return fine(check, text)


def _is_loopback(host: str) -> bool:
    return host.startswith(LOOPBACK)
