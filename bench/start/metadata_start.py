"""How long the metadata store takes to open after 100,000 changes.

    python -m bench.start.metadata_start [--changes 100000] [--keys 1000 10000 100000]

Each run puts values of 200 bytes under that many keys, one put a transaction, without syncs (the
directory is temporary), closes the store, and opens it in a new process. It prints the files and the
CPU seconds of the fastest of five starts.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import Put
from storage.files.local_files import LocalFile, LocalFileSystem

STARTS = 5
VALUE = "v" * 200


async def _write(directory: str, changes: int, keys: int) -> None:
    store = await EmbeddedMetadataStore.open(LocalFileSystem(), directory)
    for number in range(changes):
        put = Put(key=f"/topics/name-{number % keys:08d}", value=f"{number}{VALUE}")
        await store.txn((), [put])
    await store.close()


async def _start(directory: str) -> float:
    began = time.perf_counter()
    store = await EmbeddedMetadataStore.open(LocalFileSystem(), directory)
    seconds = time.perf_counter() - began
    await store.close()
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
        sizes = {path.name: path.stat().st_size for path in sorted(Path(directory).iterdir())}
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
        "--start", metavar="DIRECTORY", help="open this store and print the seconds"
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
