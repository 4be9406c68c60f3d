"""The cost of groups: a restart with a million committed offsets, and 10,000 idle members.

The offsets belong to 1,000 groups with 1,000 partitions each, committed `COMMITS_EACH` times; a broker
loads them before and after our cleaner has compacted them. Then they are committed `COMMITS_UNCLEANED`
times, and a broker loads them without the cleaner, from checkpoints. The members are in 1,000 groups of
ten and send a heartbeat every three seconds, as clients do by default.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.base.connection import Connection, connected
from bench.base.figure import Figure, interleaved, of_pairs
from bench.base.processes import broker_command, cpu_seconds, free_port, resident_bytes, running
from bench.base.raw_protocol import api_versions_request, framed, text
from cleaner.pacing.probe import Probes
from cleaner.pool.pool import CleanerPool
from protocol.internal_topics.coordinator_records import write_key, write_value
from protocol.internal_topics.group_records import OffsetCommitKey, OffsetCommitValue
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch
from server.broker import Broker
from server.config.config import BrokerConfig
from server.runtime.clock import SystemClock
from storage.batches.validate import ValidBatch
from storage.files.local_files import LocalFileSystem

GROUPS, PARTITIONS, COMMITS_EACH = 1_000, 1_000, 3
COMMITS_UNCLEANED = 10
MEMBERS_EACH = 10
HEARTBEAT_SECONDS = 3.0
BEATING_SECONDS = 9.0
LOADING = 14
"""The error code COORDINATOR_LOAD_IN_PROGRESS."""
MEMBER_KIBIBYTES = 4.0


def group_figures(pairs: int) -> list[Figure]:
    """Measure loading and idle groups."""
    return [*load_figures(pairs), *idle_figures()]


# A restart with many committed offsets.


def load_figures(pairs: int) -> list[Figure]:
    """Measure the time from fork until all groups are served."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        asyncio.run(fill(data, COMMITS_EACH))
        written = loaded_figure("before compaction", data, pairs)
        asyncio.run(_compact(data))
        compacted = loaded_figure("after compaction", data, pairs)
        dirty = Path(folder) / "dirty"
        # Its clean stop makes the checkpoints.
        asyncio.run(fill(dirty, COMMITS_UNCLEANED))
        times = f"committed {COMMITS_UNCLEANED} times"
        checked = loaded_figure(f"{times}, with checkpoints", dirty, pairs, has_checkpoints=True)
        unchecked = loaded_figure(f"{times}, without checkpoints", dirty, pairs)
        return [written, compacted, checked, unchecked]


def remove_checkpoints(data: Path) -> None:
    """Remove the checkpoints of all partitions."""
    for path in data.glob("__*/*.checkpoint"):
        path.unlink()


def loaded_figure(when: str, data: Path, pairs: int, *, has_checkpoints: bool = False) -> Figure:
    """Measure loads. Each start has the checkpoints of the last clean stop, or none."""

    def load() -> float:
        if not has_checkpoints:
            remove_checkpoints(data)
        return milliseconds_to_load(command, port)

    port = free_port()
    command = broker_command(port, data, "log.cleaner.enable=false")
    empty_port = free_port()
    empty = broker_command(empty_port, data.with_name("empty"), "log.cleaner.enable=false")
    size = sum(path.stat().st_size for path in segments(data))
    if not has_checkpoints:
        remove_checkpoints(data)
    with running(command, port) as pid:
        wait_until_loaded(port)
        megabytes = resident_bytes(pid) / 1e6
    return interleaved(
        f"time to serve 1,000 groups with 1,000,000 committed offsets, {when}",
        "ms",
        load,
        lambda: milliseconds_to_load(empty, empty_port),
        limit_is="a start without any group",
        pairs=pairs,
        note=f"{size / 1e6:.0f} MB on disk, {megabytes:.0f} MB in memory",
    )


def milliseconds_to_load(command: Sequence[str], port: int) -> float:
    started = time.perf_counter()
    with running(command, port):
        wait_until_loaded(port)
        return 1e3 * (time.perf_counter() - started)


def wait_until_loaded(port: int) -> None:
    """Request the list of groups until the broker returns one."""
    with connected(port) as connection:
        while struct.unpack_from(">h", connection.ask(framed(16, 0, 1, b"")), 4)[0] == LOADING:
            time.sleep(0.005)


def segments(data: Path) -> list[Path]:
    """Returns the segments of the partitions that have groups."""
    return sorted(data.glob("__consumer_offsets.*/*/*.log"))


def _broker(data: Path) -> Broker:
    port = free_port()
    texts = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "http.listener": "",
        "log.dirs": str(data),
        "log.cleaner.enable": "false",
    }
    return Broker(BrokerConfig.from_texts(texts), files=LocalFileSystem(), clock=SystemClock())


async def fill(data: Path, times: int) -> None:
    """Commit all offsets several times, one batch per group."""
    broker = _broker(data)
    await broker.start()
    topic = broker.groups.topic
    await topic.ensure()
    # A clean stop makes checkpoints of the partitions that are served.
    await broker.groups.table.loads.loaded()
    batches = [(f"group-{number}", _commits(f"group-{number}")) for number in range(GROUPS)]
    for _ in range(times):
        for group, batch in batches:
            log = topic.log_of(topic.partition_of(group))
            view = memoryview(bytearray(batch))
            log.appender.append_as_leader(
                ValidBatch(read_header(view), view), now_ms=broker.clock.now_ms()
            )
            broker.group_commit.appended(log)
    # A checkpoint covers what is durable.
    for log in {topic.log_of(topic.partition_of(group)) for group, _ in batches}:
        await broker.group_commit.durable(log, log.log_end_offset)
    await broker.stop()


def _commits(group: str) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    value = write_value(
        OffsetCommitValue(offset=123_456_789, leader_epoch=3, metadata="", commit_timestamp=now_ms)
    )
    keys = (
        write_key(OffsetCommitKey(group=group, topic=f"topic-{n // 100}", partition=n % 100))
        for n in range(PARTITIONS)
    )
    return build_batch(
        [Record(offset=n, timestamp=now_ms, key=key, value=value) for n, key in enumerate(keys)]
    )


async def _compact(data: Path) -> None:
    broker = _broker(data)
    await broker.start()
    settings = broker.config.cleaner_settings()
    pool = CleanerPool(
        lambda: (), settings, clock=broker.clock, probe=Probes(broker.cleaner_counts)
    )
    pool.start()
    for partition in range(broker.groups.topic.partitions_count):
        await pool.clean_now(broker.groups.topic.log_of(partition))
    await pool.stop()
    await broker.stop()


# Members that only send heartbeats.


def idle_figures() -> list[Figure]:
    """Measure processor time and memory for members that only send heartbeats."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        port = free_port()
        settings = ("group.initial.rebalance.delay.ms=1000", "log.cleaner.enable=false")
        command = broker_command(port, Path(folder) / "data", *settings)
        pid = stack.enter_context(running(command, port))
        members = [stack.enter_context(connected(port)) for _ in range(MEMBERS_EACH)]
        probe = _core_share(pid, members, [[api_versions_request()] * GROUPS] * MEMBERS_EACH)
        before = resident_bytes(pid)
        beats = _join_all(members)
        after = resident_bytes(pid)
        share = _core_share(pid, members, beats)
    count = GROUPS * MEMBERS_EACH
    processor = of_pairs(
        f"{GROUPS} groups of {MEMBERS_EACH} members that beat every 3 s",
        "% of a core",
        [(share, probe)],
        limit_is="as many ApiVersions requests",
        note=f"{count / HEARTBEAT_SECONDS:.0f} heartbeats a second on {MEMBERS_EACH} connections",
    )
    memory = of_pairs(
        "memory, each member",
        "KiB",
        [((after - before) / 1024 / count, MEMBER_KIBIBYTES)],
        limit_is="the budget",
        note="with its group's share",
    )
    return [processor, memory]


def _join_all(members: Sequence[Connection]) -> list[list[bytes]]:
    """Let all members join and get an assignment. Returns each connection's heartbeats."""
    groups = [f"group-{number}" for number in range(GROUPS)]
    for connection in members:
        connection.send(b"".join(map(_join, groups)))
    ids = [[_member_of(connection.receive()) for _ in groups] for connection in members]
    for connection, own in zip(members, ids, strict=True):
        syncs = (_sync(group, *one) for group, one in zip(groups, own, strict=True))
        connection.send(b"".join(syncs))
    for connection in members:
        for _ in groups:
            connection.receive()
    return [
        [_heartbeat(group, *one) for group, one in zip(groups, own, strict=True)] for own in ids
    ]


def _join(group: str) -> bytes:
    """Returns a JoinGroup v2 with session and rebalance timeouts of a minute."""
    body = text(group) + struct.pack(">ii", 60_000, 60_000) + text("") + text("consumer")
    subscription = struct.pack(">hi", 0, 1) + text("orders") + struct.pack(">i", -1)
    body += (
        struct.pack(">i", 1) + text("range") + struct.pack(">i", len(subscription)) + subscription
    )
    return framed(11, 2, 1, body)


def _member_of(answer: memoryview) -> tuple[int, str]:
    """Returns the generation and the member id in a JoinGroup v2 answer."""
    _, error_code, generation = struct.unpack_from(">ihi", answer, 4)
    assert error_code == 0, error_code
    position = 14
    texts = []
    for _ in range(3):  # protocol, leader, member id
        (size,) = struct.unpack_from(">h", answer, position)
        texts.append(bytes(answer[position + 2 : position + 2 + size]).decode())
        position += 2 + size
    return generation, texts[2]


def _sync(group: str, generation: int, member_id: str) -> bytes:
    """Returns a SyncGroup v1 with an empty assignment for each member; only the leader's counts."""
    body = text(group) + struct.pack(">i", generation) + text(member_id) + struct.pack(">i", 0)
    return framed(14, 1, 1, body)


def _heartbeat(group: str, generation: int, member_id: str) -> bytes:
    """Returns a Heartbeat v1."""
    return framed(12, 1, 1, text(group) + struct.pack(">i", generation) + text(member_id))


def _core_share(
    pid: int, connections: Sequence[Connection], requests: Sequence[Sequence[bytes]]
) -> float:
    """Returns percent of a core while each connection sends all its requests every three seconds."""
    slices = 100
    started, used = time.monotonic(), cpu_seconds(pid)
    turns = int(BEATING_SECONDS / HEARTBEAT_SECONDS) * slices
    for turn in range(turns):
        at = turn % slices
        for connection, own in zip(connections, requests, strict=True):
            each = len(own) // slices
            for request in own[at * each : (at + 1) * each]:
                connection.ask(request)
        time.sleep(max(started + (turn + 1) * HEARTBEAT_SECONDS / slices - time.monotonic(), 0))
    return 100 * (cpu_seconds(pid) - used) / (time.monotonic() - started)
