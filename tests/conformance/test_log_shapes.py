"""Logs with holes, as cleaning leaves them: every client reads each to its end, without spinning.

The letters are those of the table that was made by serving such logs to each client. Not served
here: an uncovered or empty tail (E, F, I, J), which the cleaner never leaves; its own tests say so.

The segments are written into the data directory of a stopped broker, and the mark of its clean
stop is removed, so that the broker finds them as it would find its own after a crash.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from metrics import client_names
from metrics.collector import CACHE_SECONDS
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch, build_empty_batch
from tests.conformance.conftest import member_or_skip
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.client_record import ConsumedRecord
from tests.harness.clients import CLIENT_NAMES, Client, create_topic
from tests.harness.group_run import GroupRun
from tests.harness.member_program import READER_PROGRAMS, ProgramUnavailable, read_to_the_end
from tests.harness.raw_connection import RawConnection, batches_of

RECORD_COUNT = struct.Struct(">i")
RECORD_COUNT_AT = 57
LARGE = 300_000
FETCHES_MAX = 150
"""For one reader of all shapes: a reader that spins asks thousands of times in a second."""
READ_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Covers offsets [base, last]; holds records at some of them."""

    base: int
    last: int
    offsets: Sequence[int]
    value_bytes: int = 10

    def encode(self) -> bytes:
        full = build_batch(
            [self.record(offset) for offset in self.offsets or [self.base]],
            base_offset=self.base,
            last_offset=self.last,
            leader_epoch=0,
        )
        return bytes(full if self.offsets else build_empty_batch(read_header(full)))

    def record(self, offset: int) -> Record:
        key, value = b"key-%d" % offset, b"%d" % (offset % 10) * self.value_bytes
        return Record(offset=offset, timestamp=1_700_000_000_000 + offset, key=key, value=value)


def full(base: int, last: int, *, value_bytes: int = 10) -> Batch:
    return Batch(base=base, last=last, offsets=range(base, last + 1), value_bytes=value_bytes)


def empty(base: int, last: int) -> Batch:
    return Batch(base=base, last=last, offsets=())


SHAPES: Mapping[str, Sequence[Batch]] = {
    "A-a-whole-batch-missing": [full(0, 4), full(10, 14)],
    "B-holes-inside-a-batch": [Batch(base=0, last=9, offsets=(0, 3, 9))],
    "C-the-tail-of-a-batch-removed": [Batch(base=0, last=9, offsets=(0, 1, 2)), full(10, 14)],
    "D-an-empty-batch-between": [full(0, 4), empty(5, 9), full(10, 14)],
    "G-the-head-missing": [full(10, 14)],
    "H-one-batch": [full(0, 9)],
    "K-data-then-empty-then-a-large-batch": [
        full(0, 4), empty(5, 9), full(10, 14, value_bytes=LARGE)
    ],
    "M-empty-first-then-a-large-batch": [empty(0, 4), full(5, 9, value_bytes=LARGE)],
    "M2-a-row-of-empty-batches": [*(empty(n, n) for n in range(50)), full(50, 54)],
}  # fmt: skip


def expected(topic: str) -> list[ConsumedRecord]:
    records = [batch.record(offset) for batch in SHAPES[topic] for offset in batch.offsets]
    return [(topic, 0, record.offset, record.key, record.value) for record in records]


def end_offset(topic: str) -> int:
    return SHAPES[topic][-1].last + 1


@pytest.fixture(scope="module")
def shapes_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that serves every shape, and does not clean it away."""
    with serving_shapes(tmp_path_factory.mktemp("shapes")) as broker:
        yield broker


@pytest.fixture(scope="module")
def internal_shapes_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The same on the listener for brokers, which may be the only one."""
    internal = {"inter.broker.listener.name": "PLAINTEXT"}
    with serving_shapes(tmp_path_factory.mktemp("internal-shapes"), internal) as broker:
        yield broker


@contextmanager
def serving_shapes(
    folder: Path, properties: Mapping[str, str] | None = None
) -> Iterator[BrokerProcess]:
    own = {"log.cleaner.enable": "false", "group.initial.rebalance.delay.ms": "0"}
    broker = BrokerProcess(folder, {**own, **(properties or {})})
    broker.start()
    for topic in SHAPES:
        create_topic(broker.bootstrap_servers, topic, config={"cleanup.policy": "compact"})
    assert broker.stop() == 0
    for topic, batches in SHAPES.items():
        write_segment(broker.data_dir, topic, b"".join(batch.encode() for batch in batches))
    (broker.data_dir / ".clean-shutdown").unlink()
    with broker:
        yield broker


def write_segment(data_dir: Path, topic: str, data: bytes) -> None:
    """Fill the one segment of the topic's one partition."""
    (directory,) = data_dir.glob(f"{topic}.*")
    (segment,) = (directory / "0").glob("*.log")
    assert segment.stat().st_size == 0
    segment.write_bytes(data)


def fetch_count(broker: BrokerProcess) -> int:
    """How many Fetch requests the broker has answered, once a scrape is not an earlier one's."""
    time.sleep(CACHE_SECONDS)
    name = f"{client_names.REQUEST_SECONDS.name}_count"
    return int(sum(samples(broker.metrics(), name, api="Fetch")))


BROKERS = ["shapes_broker", "internal_shapes_broker"]


@pytest.mark.parametrize("served_by", BROKERS)
@pytest.mark.parametrize("reader", CLIENT_NAMES)
def test_each_client_reads_each_shape_to_its_end_without_spinning(
    reader: str, served_by: str, request: pytest.FixtureRequest, clients: Mapping[str, Client]
) -> None:
    broker: BrokerProcess = request.getfixturevalue(served_by)
    before = fetch_count(broker)

    consumed = list(clients[reader].consume(broker.bootstrap_servers, list(SHAPES)))

    for topic in SHAPES:
        assert [record for record in consumed if record[0] == topic] == expected(topic)
    assert 1 <= fetch_count(broker) - before <= FETCHES_MAX


@pytest.mark.parametrize("served_by", BROKERS)
@pytest.mark.parametrize("reader", READER_PROGRAMS)
def test_clients_in_other_languages_read_each_shape_to_its_end_without_spinning(
    reader: str, served_by: str, request: pytest.FixtureRequest
) -> None:
    broker: BrokerProcess = request.getfixturevalue(served_by)
    before = fetch_count(broker)

    try:
        consumed = read_to_the_end(reader, broker.bootstrap_servers, list(SHAPES))
    except ProgramUnavailable as missing:
        pytest.skip(str(missing))

    for topic in SHAPES:
        assert [record for record in consumed if record[0] == topic] == expected(topic)
    assert 1 <= fetch_count(broker) - before <= FETCHES_MAX


@pytest.mark.parametrize("reader", ["kafkajs", "franz-go"])
@pytest.mark.parametrize("topic", [topic for topic in SHAPES if topic.startswith("M")])
def test_members_on_the_listener_for_brokers_read_past_batches_without_records(
    reader: str, topic: str, internal_shapes_broker: BrokerProcess, tmp_path: Path
) -> None:
    """Behind the batches without records is one that does not fit into the answer with them. kafkajs
    then asks Apache Kafka for ever."""
    member_or_skip(reader)
    before = fetch_count(internal_shapes_broker)
    run = GroupRun(tmp_path, internal_shapes_broker.bootstrap_servers, topic, reader)
    run.group_id = f"{reader} of {topic}"  # Its first member begins at the log start.
    wanted = {(0, offset) for _, _, offset, *_ in expected(topic)}
    try:
        run.start()
        until = time.monotonic() + READ_SECONDS_MAX
        while run.handled() != wanted:
            assert time.monotonic() < until, "it asks for ever"
            time.sleep(0.1)
    finally:
        run.end()
    assert fetch_count(internal_shapes_broker) - before <= FETCHES_MAX


@pytest.mark.parametrize("topic", SHAPES)
def test_an_answer_from_any_offset_starts_with_records(
    topic: str, shapes_broker: BrokerProcess
) -> None:
    """kafkajs asks for ever when it gets empty batches only."""
    with RawConnection(shapes_broker.port) as connection:
        assert connection.latest_offset(topic) == end_offset(topic)
        for offset in range(end_offset(topic)):
            first, *_ = batches_of(connection.fetch(topic, offset).records)
            assert RECORD_COUNT.unpack_from(first, RECORD_COUNT_AT)[0] > 0
            assert struct.unpack_from(">q", first)[0] <= next(
                found for _, _, found, *_ in expected(topic) if found >= offset
            )


def test_a_reader_that_starts_inside_a_batch_skips_the_records_before(
    shapes_broker: BrokerProcess,
) -> None:
    """Shape H, with the client most in use; the broker sends the whole batch."""
    topic = "H-one-batch"
    consumer = Consumer({"bootstrap.servers": shapes_broker.bootstrap_servers, "group.id": "x"})
    try:
        consumer.assign([TopicPartition(topic, 0, 5)])
        messages = consumer.consume(5, timeout=10)
    finally:
        consumer.close()

    assert [message.offset() for message in messages] == [5, 6, 7, 8, 9]
