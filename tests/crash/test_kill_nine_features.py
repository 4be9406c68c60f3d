"""SIGKILL while passes are undone, values expire, keys are erased, and segments are damaged.

Four topics of one broker, under producers and a cleaner that never rests; an operator acts at random.
After each kill the files and the ledger are verified, and after each restart

    undone      what an undo has brought back is there, and each acknowledged last value
    expiring    no value is gone whose time has not come; in the end all others are
    erased      no file has a record of a key that is certified as erased
    damaged     what lies outside of the damaged segment is served and cleaned; after the repair all is

KOMPAKT_KILLS sets how many kills there are, KOMPAKT_KILL_SEED repeats the choices of a run.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Producer

from protocol.records.record_batch import Record
from storage.files.local_files import ReadOnlyFileSystem
from storage.ledger.ledger_head import SignedHead, signed_head
from storage.verify.ledger import LedgerReport, LedgerVerification, cleaned_segments
from storage.verify.verify import find_logs
from tests.harness.asked_broker import ask, clean_now, erase, undo_newest
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.clients import create_topic
from tests.harness.damaged_segment import DamagedSegment, damage_one
from tests.harness.erased_log import records_on_disk
from tests.harness.log_builder import records_in
from tests.harness.numbered_records import HEADER
from tests.harness.raw_connection import ConnectionEnded, RawConnection
from tests.harness.verification import errors_in

KILLS = int(os.environ.get("KOMPAKT_KILLS", "3"))
KEYS = 60
DYING = [b"dying-%d" % number for number in range(4 * KILLS)]
"""Keys that are erased one after the other."""
BATCH = 40
RECORDS_A_ROUND_MAX = 2_000
LONG_MS = 3_600_000
SECONDS_MAX = 30.0
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "500",
    "message.timestamp.type": "LogAppendTime",
}
TOPICS = {
    "undone": {"compaction.undo.ms": "600000"},
    "expiring": {"compaction.ttl.header": "ttl"},
    "erased": {"compaction.undo.ms": "600000"},
    "damaged": {},
}


@dataclass(frozen=True, slots=True)
class Sent:
    """An acknowledged record."""

    offset: int
    timestamp: int
    ttl_ms: int


class Load:
    """A producer for all topics."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        self.last: dict[str, dict[bytes, Sent]] = {topic: {} for topic in TOPICS}
        """The last acknowledged record of each key."""
        self._choices = choices
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        for key in DYING:
            self.write("erased", key)
        self.flush()

    def write(self, topic: str, key: bytes) -> None:
        ttl_ms = self._choices.choice([0, LONG_MS])

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            sent = Sent(message.offset(), message.timestamp()[1], ttl_ms)
            known = self.last[topic].get(key, sent)
            self.last[topic][key] = max(known, sent, key=lambda each: each.offset)

        headers = [("ttl", b"%d" % ttl_ms)] if topic == "expiring" else []
        self._producer.produce(topic, b"." * 100, key, headers=headers, on_delivery=delivered)

    def write_for(self, seconds: float) -> None:
        ends_at, written = time.monotonic() + seconds, 0
        while time.monotonic() < ends_at:
            for _ in range(BATCH if written < RECORDS_A_ROUND_MAX else 0):
                self.write(
                    self._choices.choice(list(TOPICS)), b"key-%d" % self._choices.randrange(KEYS)
                )
                written += 1
            self._producer.poll(0.01)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


class Operator:
    """Acts on the broker, and checks what it did."""

    def __init__(self, broker: BrokerProcess, load: Load, choices: random.Random) -> None:
        self._broker = broker
        self._load = load
        self._choices = choices
        self._thread = ThreadPoolExecutor(1, "operator")
        self._pending: Future[None] | None = None
        self._brought_back: set[int] = set()
        """Offsets that an undo has brought back; the topic is paused since."""
        self._below: dict[str, tuple[bytes, int]] = {}
        """By erasure: the key, and below which offset its records go."""
        self._dying = [*DYING]
        self._damaged: DamagedSegment | None = None
        self._anchor: SignedHead | None = None
        self.undos = self.damages = self.fenced = 0

    # ---------------------------------------------------------------- acts

    def act(self) -> None:
        """Begin something; half of the times the broker is killed before it has ended."""
        self._pending = self._thread.submit(self._choices.choice([self._undo, self._erase]))
        if self._choices.random() < 0.5:
            self._pending.result(SECONDS_MAX)

    def wait(self) -> None:
        """Wait until what was begun has ended, with the broker or before it."""
        if self._pending is not None:
            with suppress(OSError, ValueError, HTTPException, ConnectionEnded):
                self._pending.result(SECONDS_MAX)

    def _undo(self) -> None:
        ask(self._broker, "POST", "/topics/undone/pause")
        ask(self._broker, "POST", "/topics/undone/cancel")
        before = {each.offset for each in self.records("undone")}
        ask(self._broker, "POST", "/topics/undone/resume")
        clean_now(self._broker, "undone")
        with suppress(HTTPError):  # Another pass came in between, or nothing was to be removed.
            while before - {each.offset for each in self.records("undone")}:
                if not undo_newest(self._broker, "undone"):
                    return
            self._brought_back = before
            self.undos += 1

    def _erase(self) -> None:
        key = self._dying.pop()
        erasure = erase(self._broker, "erased", key)
        self._below[erasure["id"]] = key, erasure["partitions"][0]["below"]

    # ---------------------------------------------------------------- while the broker is down

    def look_at_files(self, *, may_damage: bool = True) -> None:
        """Verify the files and the ledger; then repair what is damaged, or damage a segment."""
        path = str(self._broker.data_dir)
        report = self._ledger()
        if self._damaged is None:
            assert errors_in(ReadOnlyFileSystem(), path) == []
            assert report.is_sound, [str(each) for each in report.findings]
            if may_damage:
                self._damage()
        else:
            assert not report.is_sound, "the ledger does not know the digest of the damaged segment"
            self._damaged.repair()
            self._damaged = None
            assert self._ledger().is_sound
        self._anchor = signed_head(ReadOnlyFileSystem(), path)

    def _ledger(self) -> LedgerReport:
        fs, path = ReadOnlyFileSystem(), str(self._broker.data_dir)
        found = find_logs(fs, path)
        assert found is not None
        anchors = () if self._anchor is None else (self._anchor,)
        return LedgerVerification(fs, path, cleaned_segments(fs, found.logs), anchors=anchors).run()

    def _damage(self) -> None:
        self._damaged = damage_one(self.log_directory("damaged"), self._choices)
        self.damages += self._damaged is not None

    def log_directory(self, topic: str) -> Path:
        (directory,) = self._broker.data_dir.glob(f"{topic}.*/0")
        return directory

    # ---------------------------------------------------------------- after a restart

    def check(self) -> None:
        self._check_last_values("undone")
        self._check_undone()
        self._check_expiring()
        self._check_last_values("erased")
        self.check_erased()
        self._check_damaged()

    def _check_last_values(self, topic: str) -> None:
        erased = {*DYING} - {*self._dying}
        found = last_by_key(self.records(topic))
        for key, sent in self._load.last[topic].items():
            if topic != "erased" or key not in erased:
                assert key in found, f"{topic}: {key!r} is gone, it was {sent}"
                assert found[key].offset >= sent.offset

    def _check_undone(self) -> None:
        if self._brought_back:
            found = {each.offset for each in self.records("undone")}
            assert self._brought_back <= found, "an undo was lost"
        self._brought_back = set()
        ask(self._broker, "POST", "/topics/undone/resume")

    def _check_expiring(self) -> None:
        found = last_by_key(self.records("expiring"))
        for key, sent in self._load.last["expiring"].items():
            if sent.ttl_ms == LONG_MS:
                assert key in found, f"expiring: {key!r} is gone, it was {sent}"
                assert found[key].offset >= sent.offset
                is_younger = found[key].value is not None or named_by(found[key]) > sent.offset
                assert is_younger, f"expiring: {sent} of {key!r} has expired: {found[key]}"

    def expired_left(self) -> list[bytes | None]:
        """Returns the keys whose last value should have expired."""
        found = last_by_key(self.records("expiring"))
        last = self._load.last["expiring"]
        return [
            key
            for key, record in found.items()
            if record.value is not None and key is not None and last[key].ttl_ms == 0
        ]

    def check_erased(self) -> int:
        """Check what is certified. Returns how many erasures are not certified yet."""
        erasures = ask(self._broker, "GET", "/erasures")["erasures"]
        assert {*self._below} <= {each["id"] for each in erasures}, "an erasure was lost"
        certified = {each["id"] for each in erasures if each["is_certified"]}
        directory = str(self.log_directory("erased"))
        on_disk = [*records_on_disk(ReadOnlyFileSystem(), directory)] if certified else []
        for each in certified & {*self._below}:
            key, below = self._below[each]
            left = [offset for its, offset in on_disk if its == key and offset < below]
            assert not left, f"{key!r} is certified as erased, and at {left}"
        return len(erasures) - len(certified)

    def _check_damaged(self) -> None:
        found = last_by_key(self.records("damaged", self._damaged))
        for key, sent in self._load.last["damaged"].items():
            damaged = self._damaged
            if (
                damaged is None
                or not damaged.row.base_offset <= sent.offset < damaged.row.end_offset
            ):
                assert key in found, f"damaged: {key!r} is gone, it was {sent}"
                assert found[key].offset >= sent.offset
        job = clean_now(self._broker, "damaged")
        assert job["is_done"], job
        if self._damaged is not None:
            fenced = samples(self._broker.metrics(), "kompakt_log_fenced_bytes", topic="damaged")
            self.fenced += bool(sum(fenced))

    def records(self, topic: str, without: DamagedSegment | None = None) -> list[Record]:
        """Returns all records of a topic, without those of a damaged segment."""
        return [*records_of(self._broker.port, topic, without)]


def records_of(port: int, topic: str, without: DamagedSegment | None = None) -> Iterator[Record]:
    """Yields the records of a topic's only partition, without those of a damaged segment."""
    position = 0
    with RawConnection(port, timeout=SECONDS_MAX) as connection:
        while True:
            answer = connection.fetch(topic, position)
            assert answer.error_code == 0, answer
            if not answer.records:
                return
            for batch, next_offset in batches_in(answer.records):
                first = next_offset - 1
                if (
                    without is not None
                    and without.row.base_offset <= first < without.row.end_offset
                ):
                    position = without.row.end_offset
                    break
                yield from records_in(batch)
                position = next_offset


def batches_in(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields the whole batches, each with the offset after it."""
    while len(data) > HEADER.size:
        base, length = struct.unpack_from(">qi", data)
        if len(data) < 12 + length:
            return
        yield data[: 12 + length], base + struct.unpack_from(">i", data, 23)[0] + 1
        data = data[12 + length :]


def last_by_key(records: list[Record]) -> dict[bytes | None, Record]:
    return {each.key: each for each in records}


def named_by(tombstone: Record) -> int:
    """Returns the offset of the value for which the broker has appended a tombstone; else that of the
    tombstone itself."""
    named = dict(tombstone.headers).get("kompakt.expired")
    return tombstone.offset if named is None else int(named)


@pytest.mark.crash
def test_kills_undo_no_undo_revive_nothing_that_was_erased_and_expire_nothing_early(
    tmp_path: Path,
) -> None:
    choices = random.Random(int(os.environ.get("KOMPAKT_KILL_SEED", "7")))
    broker = BrokerProcess(tmp_path, {"log.cleaner.backoff.ms": "20"})
    broker.start()
    for topic, settings in TOPICS.items():
        create_topic(broker.bootstrap_servers, topic, config=CONFIG | settings)
    load = Load(broker.bootstrap_servers, choices)
    operator = Operator(broker, load, choices)
    try:
        for _ in range(KILLS):
            load.write_for(choices.uniform(0.1, 0.4))
            operator.act()
            load.write_for(choices.uniform(0.0, 0.2))
            broker.kill()
            operator.wait()
            operator.look_at_files()
            broker.start()
            load.flush()
            operator.check()
        assert broker.stop() == 0
        operator.look_at_files(may_damage=False)
        broker.start()
        operator.check()
        # A first sweep follows each start.
        until(lambda: not operator.expired_left())
        until(lambda: operator.check_erased() == 0)
    finally:
        broker.__exit__(None)
    assert (
        operator.fenced <= operator.damages
    )  # One with a sidecar counts as sound until it is rewritten.


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
