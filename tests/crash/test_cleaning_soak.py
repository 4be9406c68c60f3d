"""Millions of records under a cleaner that never rests and is killed in each phase of its passes.

One idempotent producer writes deletes and values in five codecs, readers hold old segments while swaps
take them away, and the broker kills itself while it indexes, marks, recopies, verifies and commits.
While it is dead, key sidecars go missing or are damaged; in some lives it keeps none. What every record
must be follows from its offset; which one must be each key's last is one array. In the end the log is
compared with it: the last value of every key and nothing else, each byte where it was.

KOMPAKT_SOAK_RECORDS sets how many records there are, KOMPAKT_SOAK_SEED repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.base.raw_protocol import fetch_head, fetch_request, produce_request
from storage.files.local_files import ReadOnlyFileSystem
from storage.files.paths import LOG, segment_file
from storage.formats.manifest import decode
from tests.harness.clients import create_topic
from tests.harness.dying_broker import LAST_WORDS, DyingBroker, Phase
from tests.harness.numbered_records import (
    HEADER,
    RECORDS_A_BATCH,
    NumberedRecords,
    Offsets,
    is_mortal,
)
from tests.harness.raw_connection import ConnectionEnded, RawConnection
from tests.harness.sidecar_mode import befall_broker
from tests.harness.verification import errors_in

RECORDS = int(os.environ.get("KOMPAKT_SOAK_RECORDS", "300000"))
KEYS = max(RECORDS // 25, 50_000)
KILLS = max(RECORDS // 1_000_000, 1) * len(Phase)
OPERATIONS_MAX = {
    Phase.INDEX: 30,
    Phase.MARK: 30,
    Phase.RECOPY: 60,
    Phase.VERIFY: 30,
    Phase.COMMIT: 20,
}
"""A death falls behind one of so many operations; more than a pass has, so not in the first only."""

TOPIC = "accounts"
DELETE_RETENTION_MS = 2_000
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(max(RECORDS, 1 << 20)),
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
BROKER = {
    "log.cleaner.backoff.ms": "20",
    # For half of the keys, and so in parts of the hash space.
    "log.cleaner.dedupe.buffer.size": str(24 * max(KEYS // 2, 2 * RECORDS_A_BATCH)),
    # What a slow reader does not take must stay in the broker, with the segment it is read from.
    "socket.send.buffer.bytes": str(1 << 16),
}
IN_FLIGHT_MAX = 5
READERS = 3
ANSWER_BYTES_MAX = 8 << 20
PIECE_BYTES = 1 << 16
PAUSES = (0, 0.005, 0.02)
"""Seconds after each piece: how slowly an answer is taken."""
SECONDS_TO_DIE_MAX = 600.0
"""With 50 million records a pass takes many seconds, and few of its operations make sidecars."""
SECONDS_TO_CONVERGE_MAX = 120.0


class Model:
    """What was acknowledged: up to which offset, and the last offset of every key."""

    def __init__(self, records: NumberedRecords) -> None:
        self.records = records
        self.end_offset = 0
        self._last = np.full(records.keys_count, -1, np.int64)
        self._lock = threading.Lock()

    def acknowledged(self, base_offset: int) -> None:
        offsets = np.arange(base_offset, base_offset + RECORDS_A_BATCH, dtype=np.int64)
        keys = self.records.keys_of(offsets)
        with self._lock:
            self._last[keys] = offsets
            self.end_offset = base_offset + RECORDS_A_BATCH

    def snapshot(self) -> tuple[int, Offsets]:
        """The end offset, and each key's last offset below it (-1: it has none)."""
        with self._lock:
            return self.end_offset, self._last.copy()

    def converged(self) -> Offsets:
        """The offsets that are left when nothing is dirty and every tombstone is gone."""
        end, last = self.snapshot()
        last = last[last >= 0]
        values = last[~self.records.are_tombstones(last)]
        # The last record always stays, so that a client can read to the end.
        return np.union1d(values, [end - 1])


class Writer:
    """The idempotent producer: what is not acknowledged when the broker dies is sent again."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._in_flight: deque[tuple[int, bytes]] = deque()
        self._next = 0
        self._connection: RawConnection | None = None

    def connect(self, port: int) -> None:
        """Continue with a broker that has just started."""
        self.close()
        self._connection = RawConnection(port, timeout=60)
        for _, frame in self._in_flight:
            self._connection.send(frame)

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.socket.close()

    def write_up_to(self, end_offset: int) -> None:
        """Have all records below this offset acknowledged."""
        while self._next < end_offset:
            self._write()
        while self._in_flight:
            self._hear()

    def write_until_death(self, broker: DyingBroker) -> None:
        """Keep up some traffic, less and less of it: a cleaner that is slow to come to its death would
        be slower with each record."""
        began = time.monotonic()
        while not broker.has_died():
            waited = time.monotonic() - began
            in_time = waited < SECONDS_TO_DIE_MAX
            assert in_time, f"the cleaner did not come to where it was to die{broker.tail()}"
            try:
                self._write()
            except (ConnectionEnded, ConnectionError):
                time.sleep(0.01)
            time.sleep(0.01 * (1 + waited))

    def _write(self) -> None:
        assert self._connection is not None
        while len(self._in_flight) >= IN_FLIGHT_MAX:
            self._hear()
        batch = self._model.records.batch(self._next)
        frame = produce_request(TOPIC, 0, batch, acks=-1)
        self._in_flight.append((self._next, frame))
        self._next += RECORDS_A_BATCH
        self._connection.send(frame)

    def _hear(self) -> None:
        """One acknowledgement: of the right offset, also of what was sent a second time."""
        assert self._connection is not None
        answer = self._connection.receive()
        at = 4 + 4 + 2 + len(TOPIC) + 4 + 4
        error_code, base_offset = struct.unpack_from(">hq", answer, at)
        expected, _ = self._in_flight.popleft()
        assert (error_code, base_offset) == (0, expected)
        self._model.acknowledged(base_offset)


class Reader(threading.Thread):
    """Reads from the start to the end again and again, often so slowly that swaps overtake it."""

    def __init__(self, broker: DyingBroker, model: Model, choices: random.Random) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._model = model
        self._choices = choices
        self._stopping = threading.Event()
        self.scans = 0
        self.records = 0
        self.pinned = 0
        """Answers during which segments stayed for their readers that a swap had taken away."""
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stopping.wait(0.1):
                self._scan()
        except Exception as error:  # noqa: BLE001 - for the thread that asks
            self._error = error

    def end(self) -> None:
        """Read no more."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def check(self) -> None:
        """Raise what it has found wrong so far."""
        if self._error is not None:
            raise self._error

    def _scan(self) -> None:
        end, expected = self._model.snapshot()
        last = np.full(len(expected), -1, np.int64)
        position: int | None = 0
        while position is not None:
            if self._stopping.is_set():
                return
            # Beyond the snapshot's end it must keep up with the writer.
            pause = self._choices.choice(PAUSES) if position < end else 0
            try:
                answer = self._receive(position, pause)
            except (OSError, ConnectionEnded):
                time.sleep(0.05)  # The broker is dead. It comes back.
                continue
            position = self._take(answer, position, last)
        # Where a key is deleted and the tombstone gone, there is nothing to see.
        missed = np.flatnonzero((last < expected) & ~is_mortal(np.arange(len(last))))
        assert not len(missed), f"last values not seen of keys {missed[:9]}"
        self.scans += 1

    def _take(self, answer: bytes, position: int, last: Offsets) -> int | None:
        """Note the last offsets of an answer's keys; the next position, None at the end."""
        batches = list(batches_in(answer, position, self._model.records))
        for offsets, _ in batches:
            last[self._model.records.keys_of(offsets)] = offsets
            self.records += len(offsets)
        return batches[-1][1] if batches else None

    def _receive(self, position: int, pause: float) -> bytes:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
            connection.settimeout(30)
            connection.connect(("127.0.0.1", self._broker.port))
            connection.sendall(fetch_request(TOPIC, 0, position, bytes_max=ANSWER_BYTES_MAX))
            (size,) = struct.unpack(">i", take(connection, 4))
            answer, taken_away, is_pinned = bytearray(), set[str](), False
            while len(answer) < size:
                answer += take(connection, min(PIECE_BYTES, size - len(answer)))
                if pause and not self._stopping.is_set():
                    time.sleep(pause)
                    before, taken_away = taken_away, segments_taken_away(self._broker)
                    is_pinned = is_pinned or bool(before & taken_away)
            self.pinned += is_pinned
            return bytes(answer)


def take(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionEnded
        data += part
    return data


def segments_taken_away(broker: DyingBroker) -> set[str]:
    """Returns the segment files that no manifest lists and that exist only for their readers."""
    (directory,) = broker.data_dir.glob(f"{TOPIC}.*/0")
    try:
        rows = decode((directory / "manifest").read_bytes(), "manifest").segments
    except FileNotFoundError:
        return set()
    listed = {segment_file(row.base_offset, row.file_version, LOG) for row in rows}
    there = {each.name for each in directory.glob(f"*{LOG}")}
    # A segment after the last row is a roll that is not listed yet.
    return {name for name in there - listed if int(name[:20]) < rows[-1].base_offset}


def batches_in(
    answer: bytes, position: int, records: NumberedRecords
) -> Iterator[tuple[Offsets, int]]:
    """The offsets in each whole batch of a Fetch answer, and where the next one may begin."""
    error_code, size, at = fetch_head(answer)
    assert error_code == 0, f"Fetch at {position} answered {error_code}"
    view, end = memoryview(answer), at + size
    while end - at >= HEADER.size:
        base, length = struct.unpack_from(">qi", view, at)
        if at + 12 + length > end:
            return
        assert base >= position, f"the batch at {base} came behind {position}"
        yield records.check(view[at : at + 12 + length]), base + RECORDS_A_BATCH
        position = base + RECORDS_A_BATCH
        at += 12 + length


def offsets_in_log(port: int, model: Model) -> Offsets:
    """Every offset that holds a record, by fetches from the start to the end."""
    found: list[Offsets] = []
    position, end = 0, model.end_offset
    with RawConnection(port, timeout=60) as connection:
        while position < end:
            connection.send(fetch_request(TOPIC, 0, position, bytes_max=ANSWER_BYTES_MAX))
            batches = list(batches_in(connection.receive(), position, model.records))
            assert batches, f"nothing at {position}, before the end at {end}"
            found += [offsets for offsets, _ in batches]
            _, position = batches[-1]
    return np.concatenate(found)


def compare_when_converged(port: int, model: Model) -> int:
    """Wait until the log holds what is left of it when cleaning is over; how many records."""
    expected = model.converged()
    deadline = time.monotonic() + SECONDS_TO_CONVERGE_MAX
    while True:
        found = offsets_in_log(port, model)
        missing = np.setdiff1d(expected, found)
        assert not len(missing), f"{len(missing)} last records are missing: {missing[:9]}"
        surplus = np.setdiff1d(found, expected)
        if not len(surplus):
            return len(found)
        assert time.monotonic() < deadline, f"{len(surplus)} records too many: {surplus[:9]}"
        time.sleep(0.5)


@pytest.mark.crash
def test_every_last_value_survives_kills_in_each_phase_of_cleaning_under_slow_readers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KOMPAKT_SOAK_SEED", str(random.randrange(1 << 32))))
    print(f"KOMPAKT_SOAK_SEED={seed}")  # noqa: T201  pytest shows it with a failure
    choices = random.Random(seed)
    model = Model(NumberedRecords(KEYS, seed))
    writer, deaths = Writer(model), Counter[str]()
    broker = DyingBroker(tmp_path, BROKER)
    broker.start()
    create_topic(broker.bootstrap_servers, TOPIC, config=TOPIC_CONFIG)
    readers = [Reader(broker, model, random.Random(choices.random())) for _ in range(READERS)]
    started = time.monotonic()
    try:
        writer.connect(broker.port)
        for reader in readers:
            reader.start()
        for number in range(KILLS):
            writer.write_up_to(RECORDS * (number + 1) // (KILLS + 1))
            phase = list(Phase)[number % len(Phase)]
            broker.order_death(phase, choices.randint(1, OPERATIONS_MAX[phase]))
            writer.write_until_death(broker)
            deaths[broker.last_words()] += 1
            for reader in readers:
                reader.check()
            assert errors_in(ReadOnlyFileSystem(), str(broker.data_dir)) == []
            befall_broker(broker, choices)
            broker.start()
            writer.connect(broker.port)
        writer.write_up_to(RECORDS)
        for reader in readers:
            reader.end()
            reader.check()
        left = compare_when_converged(broker.port, model)
    finally:
        for reader in readers:
            reader.end()
        writer.close()
        broker.__exit__(None)
    with capsys.disabled():
        print(report(model, deaths, readers, left, time.monotonic() - started))  # noqa: T201
    assert sum(reader.pinned for reader in readers), "no reader held what a swap took away"


def report(
    model: Model, deaths: Counter[str], readers: list[Reader], left: int, seconds: float
) -> str:
    """What was done and seen, for people."""
    lines = [f"\n{model.end_offset} records of {KEYS} keys, {left} left, {seconds:.0f} s"]
    phases = Counter[str]()
    for words, count in deaths.items():
        phases[words.removeprefix(LAST_WORDS).partition(":")[0].strip()] += count
    lines.append(", ".join(f"{count} kills in {phase}" for phase, count in phases.items()))
    scans, records, pinned = (
        sum(getattr(reader, name) for reader in readers) for name in ("scans", "records", "pinned")
    )
    lines.append(
        f"{scans} whole reads, {records} records read and compared, {pinned} answers during which"
        " swaps had taken segments away that were still read; 0 mismatches"
    )
    return "\n".join(lines)
