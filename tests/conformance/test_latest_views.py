"""Unmodified clients read the view of a topic's last values to its end, and continue from there.

The topics end in what clients do not see: aborted transactions, markers, records that others outrank.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from metrics import client_names
from metrics.collector import CACHE_SECONDS
from pipeline.spark.jars import JarsUnavailable
from tests.conformance.conftest import member_or_skip
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.client_record import ConsumedRecord
from tests.harness.clients import CLIENT_NAMES, Client, create_topic
from tests.harness.group_run import GroupRun, until
from tests.harness.member_program import READER_PROGRAMS, ProgramUnavailable, read_to_the_end
from tests.harness.streams_application import global_table

KEYS = 50
ROUNDS = 40
FETCHES_MAX = 150
"""For one reader of all views: a reader that spins asks thousands of times in a second."""
READ_SECONDS_MAX = 300

Last = dict[bytes, tuple[int, bytes | None]]
"""For each key the offset and value of its last record."""


class Written:
    """Writes to a topic of one partition, and knows what its view has."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.last: Last = {}
        self.end_offset = 0
        self._plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._transactional = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0}
        )
        self._transactional.init_transactions(30)

    def put(self, *pairs: tuple[bytes, bytes | None]) -> None:
        self._send(self._plain, pairs, counts=True)

    def commit(self, *pairs: tuple[bytes, bytes | None]) -> None:
        self._transactional.begin_transaction()
        self._send(self._transactional, pairs, counts=True)
        self._transactional.commit_transaction(30)
        self.end_offset += 1

    def abort(self, *pairs: tuple[bytes, bytes | None]) -> None:
        self._transactional.begin_transaction()
        self._send(self._transactional, pairs, counts=False)
        self._transactional.abort_transaction(30)
        self.end_offset += 1

    def _send(
        self, producer: Producer, pairs: tuple[tuple[bytes, bytes | None], ...], *, counts: bool
    ) -> None:
        for key, value in pairs:
            producer.produce(self.topic, key=key, value=value, partition=0)
            if counts:
                self.last[key] = (self.end_offset, value)
            self.end_offset += 1
        assert producer.flush(30) == 0

    @property
    def view(self) -> str:
        return f"{self.topic}.latest"

    def table(self) -> dict[str, str]:
        """The keys that have a value."""
        values = {key: value for key, (_, value) in self.last.items() if value is not None}
        return {key.decode(): value.decode() for key, value in values.items()}

    @property
    def ends_in_record(self) -> bool:
        """Whether a reader of the view has seen a record at the end before the last `put`."""
        return len(self.last) > 1 and self.end_offset - 2 in {at for at, _ in self.last.values()}

    def expected(self) -> list[ConsumedRecord]:
        """What a reader of the view gets, from the start."""
        records = sorted((offset, key, value) for key, (offset, value) in self.last.items())
        return [(self.view, 0, offset, key, value) for offset, key, value in records]


def keys(count: int = KEYS) -> list[bytes]:
    return [b"key-%d" % number for number in range(count)]


def write_all(written: Mapping[str, Written]) -> None:
    updates = written["updates"]
    for number in range(ROUNDS):
        updates.put(*((key, b"%d" % number) for key in keys()))
    updates.put((b"key-3", None))
    committed = written["committed"]
    for number in range(5):
        committed.commit(*((key, b"%d" % number) for key in keys()))
    aborted = written["aborted-at-the-end"]
    aborted.put(*((key, b"stays") for key in keys()))
    for _ in range(5):
        aborted.abort(*((key, b"aborted") for key in keys()))
    written["aborted-only"].abort((b"a", b"1"), (b"b", b"1"))
    late = written["late-at-the-end"]
    late.put((b"a", b"1"))
    for number in range(ROUNDS):
        late.abort((b"a", b"%d" % number))


TOPICS = ("updates", "committed", "aborted-at-the-end", "aborted-only", "late-at-the-end", "empty")


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    with serving_views(tmp_path_factory.mktemp("views")) as views:
        yield views


@pytest.fixture(scope="module")
def listed_views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    with serving_views(tmp_path_factory.mktemp("listed-views"), {"view.list": "true"}) as views:
        yield views


@contextmanager
def serving_views(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[Views]:
    own = {"log.cleaner.enable": "false", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(folder, {**own, **(properties or {})}) as broker:
        for topic in TOPICS:
            create_topic(broker.bootstrap_servers, topic, config={"cleanup.policy": "compact"})
        written = {topic: Written(broker.bootstrap_servers, topic) for topic in TOPICS}
        write_all(written)
        yield Views(broker, written)


class Views:
    """A broker with views, and what they have."""

    def __init__(self, broker: BrokerProcess, written: Mapping[str, Written]) -> None:
        self.broker = broker
        self.written = written
        self.names = [each.view for each in written.values()]

    def check(self, consumed: list[ConsumedRecord]) -> None:
        for each in self.written.values():
            assert [record for record in consumed if record[0] == each.view] == each.expected()

    def check_of_program(self, consumed: list[ConsumedRecord]) -> None:
        """Check what a program has printed, which cannot tell a null from an empty value and ends at a
        record that is the last one of its topic."""
        for each in self.written.values():
            expected = [(*place, value or b"") for *place, value in each.expected()]
            read = [record for record in consumed if record[0] == each.view]
            assert read == expected[: len(read)]
            assert len(read) >= len(expected) - each.ends_in_record


def fetch_count(broker: BrokerProcess) -> int:
    """How many Fetch requests the broker has answered, once a scrape is not an earlier one's."""
    time.sleep(CACHE_SECONDS)
    name = f"{client_names.REQUEST_SECONDS.name}_count"
    return int(sum(samples(broker.metrics(), name, api="Fetch")))


@pytest.mark.parametrize("reader", CLIENT_NAMES)
def test_each_client_reads_each_view_to_its_end_without_spinning(
    reader: str, request: pytest.FixtureRequest, clients: Mapping[str, Client]
) -> None:
    # kafka-python asks for the partitions of a topic by asking for all topics.
    views: Views = request.getfixturevalue("listed_views" if reader == "kafka-python" else "views")
    before = fetch_count(views.broker)

    views.check(list(clients[reader].consume(views.broker.bootstrap_servers, views.names)))
    assert 1 <= fetch_count(views.broker) - before <= FETCHES_MAX


@pytest.mark.parametrize("reader", READER_PROGRAMS)
def test_clients_in_other_languages_wait_at_the_end_of_each_view_and_continue_from_there(
    reader: str, views: Views
) -> None:
    before = fetch_count(views.broker)
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(
            read_to_the_end, reader, views.broker.bootstrap_servers, views.names
        )
        while fetch_count(views.broker) < before + len(TOPICS) and not reading.done():
            pass
        for each in views.written.values():
            # They know the end of a topic by a record there.
            each.put((b"after %s" % reader.encode(), b"1"))
        try:
            consumed = reading.result()
        except ProgramUnavailable as missing:
            pytest.skip(str(missing))

    views.check_of_program(consumed)
    assert 1 <= fetch_count(views.broker) - before <= FETCHES_MAX


@pytest.mark.parametrize("reader", ["kafkajs", "franz-go", "aiokafka", "kafka-python"])
def test_members_of_a_group_read_a_view_and_do_not_spin_at_its_end(
    reader: str, views: Views, tmp_path: Path
) -> None:
    member_or_skip(reader)
    before = fetch_count(views.broker)
    written = views.written["aborted-at-the-end"]
    run = GroupRun(tmp_path, views.broker.bootstrap_servers, written.view, reader)
    run.group_id = f"{reader} of views"
    wanted = {(0, offset) for _, _, offset, *_ in written.expected()}
    try:
        run.start()
        until = time.monotonic() + READ_SECONDS_MAX
        while run.handled() != wanted:
            assert time.monotonic() < until, "it asks for ever"
            time.sleep(0.1)
        at_end = fetch_count(views.broker)
        assert fetch_count(views.broker) - at_end <= FETCHES_MAX // 10
    finally:
        run.end()
    assert fetch_count(views.broker) - before <= FETCHES_MAX


def test_kafka_streams_has_a_view_as_a_global_table_and_follows_it(
    views: Views, tmp_path: Path
) -> None:
    written = views.written["updates"]
    try:
        table = global_table(tmp_path, views.broker.bootstrap_servers, written.view)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with table:
        assert table.rows() == written.table()
        written.put((b"key-1", b"changed"), (b"key-2", None), (b"of-streams", b"1"))
        until(
            "the table has the changes",
            lambda: table.rows() == written.table(),
            lambda: str(table.rows().items() ^ written.table().items()),
        )
        table.stop()
