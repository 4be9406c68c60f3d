"""A snapshot of the metadata while transactions continue: by a child process, and in process.

Each run is a new process, which opens a store with a snapshot of that many entries, writes 10,000
changes, and then has a snapshot made while one client writes a transaction every 5 ms and the event
loop ticks every millisecond. Before the snapshot the same load runs alone: its CPU is subtracted.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.base.figure import Figure, of_pairs
from replog.checkpoints import Checkpoints
from replog.digest import set_digest
from replog.entry import SnapshotId
from replog.entry_log import EntryLog
from replog.machine import Row
from replog.trigger import CompactionSettings, SnapshotterName
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.machine import entry_row, revision_row
from server.metadata.store import Entry, Put
from storage.files.local_files import LocalFileSystem

SIZES = (100_000, 1_000_000)
PAIRS_MAX = 3
CHANGES = 10_000
VALUE = "v" * 120
TICK_SECONDS = 0.001
WRITE_SECONDS = 0.005
ALONE_SECONDS = 3.0


class Cost(NamedTuple):
    """What one snapshot cost."""

    broker_cpu_s: float
    all_cpu_s: float
    seconds: float
    stall_ms: float
    """The longest time that the loop was late."""
    late_ms: float
    """The time that the loop was late by more than 5 ms, in all."""
    write_ms: float
    """The longest transaction."""
    broker_mib: float
    """How much the broker's memory grew at most."""
    all_mib: float
    """The same, with all of a child's memory."""


NAMES = {
    "broker_cpu_s": "CPU of the broker",
    "all_cpu_s": "CPU of the broker and of the child",
    "seconds": "duration",
    "stall_ms": "longest stall of the loop",
    "late_ms": "sum of the loop's stalls over 5 ms",
    "write_ms": "longest transaction",
    "broker_mib": "memory of the broker",
    "all_mib": "memory of the broker and of the child",
}
UNITS = {"s": "s", "seconds": "s", "ms": "ms", "mib": "MiB"}


def snapshotter_figures(pairs: int) -> list[Figure]:
    """Measure both snapshotters, in turn."""
    figures: list[Figure] = []
    for entries in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            _build(source, entries)
            merge, own = SnapshotterName.OFFLINE_MERGE, SnapshotterName.IN_PROCESS
            taken = [
                (_measured(source, merge), _measured(source, own))
                for _ in range(min(pairs, PAIRS_MAX))
            ]
        figures += _figures(entries, taken)
    return figures


def _figures(entries: int, taken: list[tuple[Cost, Cost]]) -> list[Figure]:
    return [
        of_pairs(
            f"{entries:,} entries: {name}",
            UNITS[field.rpartition("_")[2]],
            [(getattr(merge, field), getattr(own, field)) for merge, own in taken],
            limit_is="in process",
            note="offline merge",
        )
        for field, name in NAMES.items()
    ]


def _build(directory: Path, entries: int) -> None:
    """Make a metadata directory whose snapshot has so many entries."""
    directory.mkdir()
    files = LocalFileSystem()
    snapshot = SnapshotId(entries + 1, 1)
    checkpoints = Checkpoints(files, str(directory))
    writer = checkpoints.begin(snapshot, _rows(entries), set_digest(_rows(entries)))
    while writer.step():
        pass
    writer.finish()
    EntryLog.create(files, str(directory), snapshot.end, snapshot.term).close()
    checkpoints.publish(snapshot)


def _rows(entries: int) -> Iterator[Row]:
    for number in range(entries):
        yield entry_row(
            Entry(
                key=_key(number),
                value=f"{number}{VALUE}",
                create_revision=number + 1,
                mod_revision=number + 1,
            )
        )
    yield revision_row(entries)


def _key(number: int) -> str:
    return f"/topics/name-{number:08d}"


def _measured(source: Path, snapshotter: SnapshotterName) -> Cost:
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        directory = Path(folder) / "metadata"
        shutil.copytree(source, directory)
        command = [sys.executable, "-m", "bench.replog.snapshotters", str(directory)]
        output = subprocess.check_output([*command, snapshotter.value], text=True)
    return Cost(**json.loads(output))


# The measured process.


class Load:
    """A client that writes, and a clock that notices when the loop is late."""

    def __init__(self, store: EmbeddedMetadataStore) -> None:
        self.store = store
        self.late: list[float] = []
        self.writes: list[float] = []
        self.child_kib = 0
        self.is_over = False

    async def tick(self) -> None:
        while not self.is_over:
            due = time.perf_counter() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.late.append(time.perf_counter() - due)

    async def watch_child(self) -> None:
        """Note the largest memory of the child, which has the parent's in its resource usage."""
        while not self.is_over:
            run = getattr(self.store._log.compactor.writer, "_run", None)
            if run is not None:
                self.child_kib = max(self.child_kib, _status("VmHWM", run._process.pid))
            await asyncio.sleep(0.02)

    async def write(self) -> None:
        random = Random(1)
        while not self.is_over:
            began = time.perf_counter()
            put = Put(key=_key(random.randrange(50_000)), value=VALUE)
            await self.store.txn((), [put])
            self.writes.append(time.perf_counter() - began)
            await asyncio.sleep(WRITE_SECONDS)


@contextmanager
def _memory() -> Iterator[list[float]]:
    """Yields a list to which the growth of this process's memory is added, at its largest, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    before, grown = _status("VmRSS"), list[float]()
    yield grown
    grown.append((_status("VmHWM") - before) / 1024)


def _status(name: str, pid: int | str = "self") -> int:
    """Returns a number of a process's status in KiB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = text.partition(f"{name}:")[2].split()
    return int(found[0]) if found else 0


async def _run(directory: str, snapshotter: SnapshotterName) -> Cost:
    never = CompactionSettings(u=1e-9, replay_ms=1e12, age_ms=1e12, snapshotter=snapshotter)
    store = await EmbeddedMetadataStore.open(LocalFileSystem(), directory, never)
    random = Random(0)
    for start in range(0, CHANGES, 100):
        puts = [Put(key=_key(random.randrange(50_000)), value=f"{start}") for _ in range(100)]
        await store.txn((), puts)
    alone_cpu = await _cpu_alone(store)
    load = Load(store)
    work = (load.tick(), load.write(), load.watch_child())
    tasks = [asyncio.create_task(each) for each in work]
    began, cpu = time.perf_counter(), time.process_time()
    with _memory() as grown:
        async with store._lock:
            await store._begin_snapshot()
        await asyncio.gather(*store._snapshotting)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    load.is_over = True
    await asyncio.gather(*tasks)
    await store.close()
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    is_merged = snapshotter is SnapshotterName.OFFLINE_MERGE
    assert bool(load.child_kib) is is_merged, "not the snapshotter to measure"
    cpu -= alone_cpu * seconds / ALONE_SECONDS
    return Cost(
        broker_cpu_s=cpu,
        all_cpu_s=cpu + child.ru_utime + child.ru_stime,
        seconds=seconds,
        stall_ms=max(load.late) * 1000,
        late_ms=sum(late for late in load.late if late > 0.005) * 1000,
        write_ms=max(load.writes) * 1000,
        broker_mib=grown[0],
        all_mib=grown[0] + load.child_kib / 1024,
    )


async def _cpu_alone(store: EmbeddedMetadataStore) -> float:
    """Run the load without a snapshot. Returns its CPU seconds."""
    load = Load(store)
    tasks = [asyncio.create_task(load.tick()), asyncio.create_task(load.write())]
    cpu = time.process_time()
    await asyncio.sleep(ALONE_SECONDS)
    cpu = time.process_time() - cpu
    load.is_over = True
    await asyncio.gather(*tasks)
    return cpu


if __name__ == "__main__":
    _cost = asyncio.run(_run(sys.argv[1], SnapshotterName(sys.argv[2])))
    sys.stdout.write(json.dumps(_cost._asdict()))
    sys.stdout.flush()
    # Without freeing a million entries.
    os._exit(0)
