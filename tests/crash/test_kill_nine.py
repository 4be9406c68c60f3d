"""SIGKILL at random moments, under producers and under the cleaner: nothing acknowledged is lost.

One history runs over all kills. `journal` keeps everything and is written by an idempotent
producer; `table` is compacted, by a cleaner that never rests, and is written by an idempotent
and by a plain producer. After each kill the files are verified as they are, then key sidecars may go
missing or be damaged, and the next life may keep none; after each restart the logs are read whole and
held against the history.

`KOMPAKT_KILL_SEED` repeats the choices of a run (its moments shift with the machine's load),
`KOMPAKT_KILLS` sets how many kills there are.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.raw_connection import RawConnection
from tests.harness.sidecar_mode import befall_broker
from tests.harness.verification import errors_in

KILLS = int(os.environ.get("KOMPAKT_KILLS", "25"))
KEYS = 500
RECORDS_BEFORE_A_LOOK = 50
RECORDS_A_ROUND_MAX = 3_000
JOURNAL, TABLE = "journal", "table"
TOPICS: Mapping[str, Mapping[str, str]] = {
    JOURNAL: {"cleanup.policy": "delete", "segment.bytes": str(1 << 20)},
    TABLE: {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "86400000",
    },
}
WINDOW = "window"
WINDOW_CONFIG = {
    "cleanup.policy": "delete",
    "internal.segment.bytes": "50000",
    "retention.bytes": "100000",
}
CLEANER = {"log.cleaner.backoff.ms": "20", "log.cleaner.threads": "1"}
IO_BUDGET = "log.cleaner.io.max.bytes.per.second"
BYTES_A_SECOND = (300_000, 1_000_000, 3_000_000, 100_000_000)
"""One of them for each life of the broker. Without a low one passes take milliseconds and the
kills fall between them; with a low one only, the cleaner falls behind and dies reading each time."""
AIMED = 0.5
"""This share of the kills waits for a recopy and falls at a random moment of it; chance alone hits
next to none in some runs."""
RECOPY_SECONDS_MAX = 1.0
KILLS_WHILE_RECOPYING_MIN = KILLS // 10


@dataclass(slots=True)
class History:
    """What was seen of one topic (of one partition), from the first start on."""

    records: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Offset -> key and value: acknowledged or read. An offset never holds anything else."""
    acknowledged: set[int] = field(default_factory=set)
    high_watermark: int = 0
    """The highest that was ever served."""
    last_stable_offset: int = 0
    """The highest that was ever served."""

    def saw(self, offset: int, record: tuple[bytes, bytes]) -> None:
        assert self.records.setdefault(offset, record) == record, f"offset {offset} was reused"

    def served(self, high_watermark: int, last_stable_offset: int) -> None:
        assert high_watermark >= self.high_watermark, "the high watermark went back"
        assert last_stable_offset >= self.last_stable_offset, "the last stable offset went back"
        self.high_watermark, self.last_stable_offset = high_watermark, last_stable_offset

    def last_offset_by_key(self) -> dict[bytes, int]:
        """Of all that was seen."""
        return {self.records[offset][0]: offset for offset in sorted(self.records)}


class Writer:
    """A producer that survives all kills; its answers go into the topic's history."""

    __slots__ = ("_history", "_name", "_producer", "_topic", "sent")

    def __init__(self, bootstrap: str, topic: str, history: History, *, idempotent: bool) -> None:
        self._topic = topic
        self._history = history
        self._name = f"{topic}{'-idempotent' if idempotent else ''}".encode()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.sent = 0

    def write(self, key: bytes) -> None:
        """Queue one record; its value is unlike any other."""
        value = b"%s %d " % (self._name, self.sent) + b"." * 100
        self.sent += 1
        self._producer.produce(self._topic, key=key, value=value, on_delivery=self._delivered)

    def listen(self) -> None:
        self._producer.poll(0)

    def wait_for_one(self) -> None:
        self._producer.poll(1)

    def finish(self) -> None:
        assert self._producer.flush(30) == 0

    def in_flight(self) -> int:
        return len(self._producer)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, f"{self._topic}: {error}"
        self._history.saw(message.offset(), (message.key(), message.value()))
        self._history.acknowledged.add(message.offset())


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_under_load_and_under_cleaning(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("KOMPAKT_KILL_SEED", str(random.randrange(1 << 32))))
    print(f"KOMPAKT_KILL_SEED={seed}")  # noqa: T201  pytest shows it with a failure
    choices = random.Random(seed)
    broker = BrokerProcess(tmp_path, CLEANER)
    broker.start()
    for topic, config in TOPICS.items():
        create_topic(broker.bootstrap_servers, topic, config=config)
    histories = {topic: History() for topic in TOPICS}
    writers = [
        Writer(broker.bootstrap_servers, topic, histories[topic], idempotent=idempotent)
        for topic, idempotent in ((JOURNAL, True), (TABLE, True), (TABLE, False))
    ]

    kills_while_recopying = 0
    try:
        for kills in itertools.count():
            # A slow machine needs more kills until enough of them have hit a recopy.
            if kills >= KILLS and kills_while_recopying >= KILLS_WHILE_RECOPYING_MIN:
                break
            write_until_the_moment(broker, writers, histories, choices)
            if choices.random() < AIMED:
                wait_for_a_recopy(broker)
                time.sleep(choices.uniform(0, 0.03))
            broker.kill()
            kills_while_recopying += a_recopy_is_unfinished(broker)
            assert errors_in(ReadOnlyFileSystem(), str(broker.data_dir)) == []
            befall_broker(broker, choices)
            broker.overrides[IO_BUDGET] = choices.choice(BYTES_A_SECOND)
            broker.start()
            check_after_restart(broker, histories)
        finish(broker, writers, histories)
    finally:
        broker.__exit__(None)


@pytest.mark.crash
def test_what_was_served_stays_served_over_kills_though_nothing_was_synced(tmp_path: Path) -> None:
    """Kafka's promise, `flush.on.acks.all=false`: a crash of the process alone takes nothing."""
    broker = BrokerProcess(tmp_path, {"flush.on.acks.all": "false"})
    broker.start()
    create_topic(broker.bootstrap_servers, JOURNAL, config=TOPICS[JOURNAL])
    history = History()
    writer = Writer(broker.bootstrap_servers, JOURNAL, history, idempotent=True)
    try:
        for _ in range(4):
            with RawConnection(broker.port) as connection:
                for _ in range(20):
                    for _ in range(RECORDS_BEFORE_A_LOOK):
                        writer.write(b"key")
                    writer.listen()
                    look_at_high_watermarks(connection, {JOURNAL: history})
            broker.kill()
            broker.start()
            with RawConnection(broker.port) as connection:
                look_at_high_watermarks(connection, {JOURNAL: history})
        writer.finish()
        with RawConnection(broker.port) as connection:
            look_at_high_watermarks(connection, {JOURNAL: history})
        assert history.high_watermark == writer.sent == len(history.acknowledged)
    finally:
        broker.__exit__(None)


@pytest.mark.crash
def test_what_was_deleted_stays_deleted_over_kills_and_nothing_else_goes(tmp_path: Path) -> None:
    """Retention that never rests, and DeleteRecords: the log start that was served never goes back."""
    broker = BrokerProcess(tmp_path, {"log.retention.check.interval.ms": "20"})
    broker.start()
    create_topic(broker.bootstrap_servers, WINDOW, config=WINDOW_CONFIG)
    history = History()
    writer = Writer(broker.bootstrap_servers, WINDOW, history, idempotent=True)
    start = 0
    try:
        for round_ in range(4):
            with RawConnection(broker.port) as connection:
                enough = len(history.acknowledged) + 1500
                while len(history.acknowledged) < enough:
                    for _ in range(RECORDS_BEFORE_A_LOOK):
                        writer.write(b"key")
                    writer.wait_for_one()
                    start = max(start, connection.earliest_offset(WINDOW))
            if round_ % 2 == 0:
                start = max(start, empty_topic(broker, WINDOW))
            broker.kill()
            assert errors_in(ReadOnlyFileSystem(), str(broker.data_dir)) == []
            broker.start()
            with RawConnection(broker.port) as connection:
                served = connection.earliest_offset(WINDOW)
                assert served >= start, "the log start went back"
                start = served
        writer.finish()
        # Retention rests from here on, or it would delete what is about to be read.
        broker.overrides.clear()
        broker.restart()
        with RawConnection(broker.port) as connection:
            served = connection.earliest_offset(WINDOW)
        assert served >= start > 0, "the log start went back"
        found = read_all(broker, [WINDOW])[WINDOW]
        assert list(found) == list(range(served, writer.sent)), "dense to the end"
        for offset, record in found.items():
            history.saw(offset, record)
    finally:
        broker.__exit__(None)


def empty_topic(broker: BrokerProcess, topic: str) -> int:
    """Delete all records that can be read; the low watermark that was answered."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values()
    return int(deleted.result(10).low_watermark)


def wait_for_a_recopy(broker: BrokerProcess) -> None:
    """Until the cleaner writes a segment, or for a while: it may have nothing to clean."""
    ends_at = time.monotonic() + RECOPY_SECONDS_MAX
    while time.monotonic() < ends_at and not a_recopy_is_unfinished(broker):
        time.sleep(0.002)


def a_recopy_is_unfinished(broker: BrokerProcess) -> bool:
    """There is a cleaned segment that no swap has taken: one at work, or one cut off by a kill."""
    return any(broker.data_dir.rglob("*.cleaned"))


def write_until_the_moment(
    broker: BrokerProcess,
    writers: list[Writer],
    histories: Mapping[str, History],
    choices: random.Random,
) -> None:
    """Keep all writers and the cleaner busy, and look at the high watermarks, for a random time."""
    ends_at = time.monotonic() + choices.uniform(0.02, 0.6)
    written = 0
    with RawConnection(broker.port) as connection:
        while time.monotonic() < ends_at:
            for _ in range(RECORDS_BEFORE_A_LOOK):
                for writer in writers:
                    if written < RECORDS_A_ROUND_MAX:
                        writer.write(b"key-%d" % choices.randrange(KEYS))
                        written += 1
            for writer in writers:
                writer.listen()
            look_at_high_watermarks(connection, histories)


def look_at_high_watermarks(connection: RawConnection, histories: Mapping[str, History]) -> None:
    for topic, history in histories.items():
        answer = connection.fetch(topic, connection.latest_offset(topic))
        history.served(answer.high_watermark, answer.last_stable_offset)


def check_after_restart(broker: BrokerProcess, histories: Mapping[str, History]) -> None:
    """Right after recovery, before anything else."""
    with RawConnection(broker.port) as connection:
        look_at_high_watermarks(connection, histories)
    read = read_all(broker)
    for topic, found in read.items():
        for offset, record in found.items():
            histories[topic].saw(offset, record)
    check_journal(histories[JOURNAL], read[JOURNAL])
    check_table(histories[TABLE], read[TABLE])


def read_all(
    broker: BrokerProcess, topics: Sequence[str] = tuple(TOPICS)
) -> dict[str, dict[int, tuple[bytes, bytes]]]:
    """Topic -> offset -> key and value, all of the logs."""
    read: dict[str, dict[int, tuple[bytes, bytes]]] = {topic: {} for topic in topics}
    consumed = ConfluentClient().consume(broker.bootstrap_servers, topics)
    for topic, _, offset, key, value in consumed:
        assert key is not None
        assert value is not None
        assert offset not in read[topic], "one offset came twice"
        read[topic][offset] = (key, value)
    return read


def check_journal(history: History, found: Mapping[int, tuple[bytes, bytes]]) -> None:
    """Every acknowledged record is there, offsets are dense, and no record is there twice."""
    assert history.acknowledged <= found.keys(), "an acknowledged record is missing"
    assert list(found) == list(range(len(found)))
    values = [value for _, value in found.values()]
    assert len(set(values)) == len(values), "a record of the idempotent producer is there twice"


def check_table(history: History, found: Mapping[int, tuple[bytes, bytes]]) -> None:
    """An acknowledged record is missing only if a later one of its key is there."""
    last = {key: offset for offset, (key, _) in sorted(found.items())}
    for offset in history.acknowledged - found.keys():
        key = history.records[offset][0]
        assert last.get(key, -1) > offset, f"{key!r}: acknowledged at {offset}, then lost"


def finish(broker: BrokerProcess, writers: list[Writer], histories: Mapping[str, History]) -> None:
    """Check that everything sent is acknowledged, that cleaning ends, and that the last values are
    right."""
    for writer in writers:
        writer.finish()
    broker.overrides.pop(IO_BUDGET, None)
    broker.restart()
    wait_until_clean(f"127.0.0.1:{broker.http_port}", TABLE)
    check_after_restart(broker, histories)

    assert len(histories[JOURNAL].records) == writers[0].sent
    table = read_all(broker)[TABLE]
    last = histories[TABLE].last_offset_by_key()
    assert {key: offset for offset, (key, _) in table.items()} == last
    assert len(table) < len(histories[TABLE].acknowledged) / 2, "the cleaner had work"
