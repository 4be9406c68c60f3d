"""Notes when a consumer gets each batch, in a process of its own: `python -m bench.clients.arrivals`.

    arrivals PORT TOPIC FILE COPY OFFSET...   reads from one offset of each partition on
    standard output                           a line once it reads
    standard input                            a line with the end offset of each partition

Unless COPY is empty, a batch counts as arrived once it is written to that file and synced.
FILE then has, for each batch, partition, base offset and the monotonic clock in nanoseconds, which all
processes of a machine share.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.base.connection import connected
from bench.base.processes import REPOSITORY
from bench.base.raw_protocol import fetch_from_many_request, fetched_records

ANSWER_BYTES_MAX = 4 << 20
WAIT_MS = 500
COLUMNS = 3
BATCH = struct.Struct(">qi11xi")
"""Base offset, size after it, and last offset delta of a batch."""
SIZE_AFTER = 12

Arrivals = Mapping[tuple[int, int], int]
"""When a batch was there, in nanoseconds, by partition and base offset."""


class Consumer:
    """The process, seen from its parent."""

    def __init__(self, process: subprocess.Popen[str], file: Path) -> None:
        self._process = process
        self._file = file

    def read_up_to(self, ends: Sequence[int]) -> Arrivals:
        """Wait until it has read up to these offsets. Returns when each batch arrived."""
        self._process.communicate(" ".join(map(str, ends)) + "\n")
        assert self._process.returncode == 0, self._process.returncode
        rows = array("q")
        rows.frombytes(self._file.read_bytes())
        places = zip(rows[::COLUMNS], rows[1::COLUMNS], strict=True)
        return dict(zip(places, rows[2::COLUMNS], strict=True))


@contextmanager
def consuming(
    port: int, topic: str, starts: Sequence[int], folder: Path, *, copies: bool
) -> Iterator[Consumer]:
    """Run a consumer that reads partitions from these offsets on, with its files in `folder`.

    Args:
        copies: whether a batch counts as arrived once it is written and synced.
    """
    file, copy = folder / "arrivals", str(folder / "copy") if copies else ""
    command = [sys.executable, "-m", "bench.clients.arrivals", str(port), topic, str(file), copy]
    with subprocess.Popen(
        [*command, *map(str, starts)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Consumer(process, file)
        finally:
            process.kill()


def main(port: str, topic: str, file: str, copy: str, *starts: str) -> None:
    """Read, and write what arrived when."""
    offsets = dict(enumerate(map(int, starts)))
    rows = array("q")
    ends: list[int] = []
    with connected(int(port)) as connection, Path(copy or os.devnull).open("wb", 0) as target:
        print("reads", flush=True)
        while not ends or any(offsets[at] < end for at, end in enumerate(ends)):
            request = fetch_from_many_request(
                topic, offsets, bytes_max=ANSWER_BYTES_MAX, wait_ms=WAIT_MS
            )
            answer = connection.ask(request)
            if copy:
                target.write(answer)
                os.fdatasync(target.fileno())
            note(answer, time.monotonic_ns(), offsets, rows)
            ends = ends or given()
    Path(file).write_bytes(rows.tobytes())


def note(answer: memoryview, now_ns: int, offsets: dict[int, int], rows: array[int]) -> None:
    """Note the batches of an answer, and move the offsets behind them."""
    for partition, records in fetched_records(answer):
        position = 0
        while position < len(records):
            base, size, last_delta = BATCH.unpack_from(records, position)
            rows.extend((partition, base, now_ns))
            offsets[partition] = base + last_delta + 1
            position += SIZE_AFTER + size


def given() -> list[int]:
    """Returns the end offsets, once the parent has written them."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return list(map(int, sys.stdin.readline().split())) if ready else []


if __name__ == "__main__":
    main(*sys.argv[1:])
