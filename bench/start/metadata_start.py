"""How long the metadata stores take to open after 100,000 changes of topics.

    python -m bench.start.metadata_start [--changes 100000] [--keys 1000 10000 100000]

Each run puts that many topics, again and again, as their creation does: first a placement into the
node's store, then the topic into the cluster's. There are no syncs (the directory is temporary). Then a
new process opens both stores. It prints the files and the seconds of the fastest of five starts.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from replog.trigger import CompactionSettings
from server.metadata.store import Put
from server.topics.keys import PLACED, TOPICS, placed_json, topic_value
from server.topics.stores import open_stores
from storage.files.local_files import LocalFile, LocalFileSystem

STARTS = 5
OVERRIDES = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": "104857600",
}


async def _write(directory: str, changes: int, keys: int) -> None:
    stores = await open_stores(LocalFileSystem(), directory, CompactionSettings())
    holder = str(uuid.UUID(int=1))
    for number in range(changes):
        topic = number % keys
        name, topic_id = f"name-{topic:08d}", uuid.UUID(int=topic + 1)
        placed = Put(key=f"{PLACED}{topic_id}", value=placed_json(name, [holder]))
        await stores.node.txn((), [placed])
        value = topic_value(topic_id, 1, OVERRIDES)
        await stores.cluster.txn((), [Put(key=f"{TOPICS}{name}", value=value)])
    await stores.close()


async def _start(directory: str) -> float:
    began = time.perf_counter()
    stores = await open_stores(LocalFileSystem(), directory, CompactionSettings())
    seconds = time.perf_counter() - began
    await stores.close()
    return seconds


def _no_sync(_: LocalFile) -> None:
    """Leave the bytes to the system."""


def _seconds_of_a_start(directory: str) -> float:
    command = [sys.executable, "-m", "bench.start.metadata_start", "--start", directory]
    return float(subprocess.check_output(command, text=True))


def _measure(changes: int, keys: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        asyncio.run(_write(directory, changes, keys))
        written = time.perf_counter() - began
        files = sorted(path for path in Path(directory).rglob("*") if path.is_file())
        sizes = {str(path.relative_to(directory)): path.stat().st_size for path in files}
        seconds = min(_seconds_of_a_start(directory) for _ in range(STARTS))
        print(f"{keys:>8,} keys: start {seconds:.3f} s, {sum(sizes.values()):,} bytes on disk,"
              f" {written / changes * 1e6:.0f} us a change")  # fmt: skip
        for name, size in sizes.items():
            print(f"           {name}: {size:,}")


def main() -> None:
    """Measure each number of keys."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--start", metavar="DIRECTORY", help="open these stores and print the seconds"
    )
    options = parser.parse_args()
    if options.start:
        print(asyncio.run(_start(options.start)))
        return
    setattr(LocalFile, "sync", _no_sync)  # noqa: B010 - mypy refuses the assignment
    for keys in options.keys:
        _measure(options.changes, keys)


if __name__ == "__main__":
    main()
