"""Segment files of a live broker as a source give what Spark's Kafka source gives, row for row."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from pipeline.source.filters import RowFilter
from pipeline.source.options import BadOption, parse_options
from pipeline.source.plan import plan
from pipeline.source.read import OffsetsGone, RangeOfLog
from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

TABLE, EVENTS, BUSY = "table", "events", "busy"
READS_MIN, SEGMENTS_MIN = 3, 6
"""Of a table that changes: a slow machine continues until so many segments were seen."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "index.interval.bytes": "200",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "86400000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose topics have seen everything that a log can see."""
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, {"log.cleaner.backoff.ms": 20}) as started:
        fill_table(started)
        fill_events(started)
        yield started


@pytest.fixture
def source(session: SparkSession, broker: BrokerProcess) -> Source:
    return Source(session, broker)


def fill_table(broker: BrokerProcess) -> None:
    """Keys that change and die, headers, all codecs; cleaned; transactions of all ends on top."""
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, TABLE, partitions=3, config=COMPACTED)
    for codec in CODECS:
        send(bootstrap, TABLE, codec, range(300))
    transact(bootstrap, "before", "commit")
    transact(bootstrap, "gone", "abort")
    wait_until_clean(f"127.0.0.1:{broker.http_port}", TABLE)
    for codec in CODECS:
        send(bootstrap, TABLE, codec, range(40, 80))
    transact(bootstrap, "one", "commit")
    transact(bootstrap, "two", "abort")
    transact(bootstrap, "three", "stay open")
    send(bootstrap, TABLE, "none", range(20))
    # Two sources can only be compared where the log stays as it is.
    set_config(bootstrap, TABLE, "min.compaction.lag.ms", "86400000")


def fill_events(broker: BrokerProcess) -> None:
    """The broker's time, and a log start in the middle of a batch."""
    bootstrap = broker.bootstrap_servers
    config = {"message.timestamp.type": "LogAppendTime", "segment.ms": "100"}
    create_topic(bootstrap, EVENTS, partitions=2, config=config)
    send(bootstrap, EVENTS, "zstd", range(400))
    start = TopicPartition(EVENTS, 0, 77)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.delete_records([start]).values()
    done.result(30)


def set_config(bootstrap: str, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(30)


def send(bootstrap: str, topic: str, codec: str, numbers: range) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20,
         "batch.num.messages": 30}
    )  # fmt: skip
    for number in numbers:
        producer.produce(topic, **record(number, codec))
        if number % 60 == 59:
            producer.flush(30)
            # So that the next batch finds its segment older than segment.ms.
            time.sleep(0.11)
    assert producer.flush(30) == 0


def record(number: int, word: str) -> dict[str, Any]:
    value = (
        None if number % 7 == 3 else b"" if number % 7 == 4 else f"{word} {number} ".encode() * 5
    )
    headers = [("name", b"value"), ("name", b"again"), ("null", None), ("empty", b"")]
    return {
        "key": b"key-%d" % (number % 50),
        "value": value,
        "headers": headers[: number % 5],
        "partition": number % 2,
        "timestamp": 1_700_000_000_000 + 1000 * number,
    }


def transact(bootstrap: str, name: str, end: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(100, 140):
        producer.produce(TABLE, **record(number, name))
    producer.flush(30)
    if end == "commit":
        producer.commit_transaction(30)
    elif end == "abort":
        producer.abort_transaction(30)


class Source:
    """The same question to both sources."""

    def __init__(self, session: SparkSession, broker: BrokerProcess) -> None:
        from pipeline.source.segment_source import register

        register(session)
        self.session = session
        self.broker = broker

    def kafka(self, **options: str) -> DataFrame:
        reader = self.session.read.format("kafka").options(**with_dots(options))
        return reader.option("kafka.bootstrap.servers", self.broker.bootstrap_servers).load()

    def files(self, path: Path | str = "", **options: str) -> DataFrame:
        reader = self.session.read.format("kompakt").options(**with_dots(options))
        return reader.load(str(path or self.broker.data_dir))

    def assert_same(self, **options: str) -> int:
        """Both give the same rows; how many."""
        expected = rows_of(self.kafka(**options))
        assert rows_of(self.files(maxPartitionBytes="40000", **options)) == expected
        return len(expected)


def planned(broker: BrokerProcess, path: Path | str = "", **options: str) -> list[RangeOfLog]:
    """Returns the plan of a read, without Spark."""
    given = {"path": str(path or broker.data_dir), **with_dots(options)}
    return plan(ReadOnlyFileSystem(), parse_options(given), RowFilter())


def with_dots(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_the_kafka_source(source: Source, isolation: str) -> None:
    count = source.assert_same(
        subscribe=f"{TABLE},{EVENTS}", includeHeaders="true", kafka__isolation__level=isolation
    )

    assert count > 300


def test_the_schema_is_that_of_the_kafka_source(source: Source) -> None:
    for headers in ("true", "false"):
        options = {"subscribe": TABLE, "includeHeaders": headers}
        assert source.files(**options).schema == source.kafka(**options).schema


def test_offsets_mean_what_they_mean_to_the_kafka_source(source: Source) -> None:
    start = {TABLE: {"0": 800, "1": -2, "2": -2}, EVENTS: {"0": 100, "1": 3}}
    end = {TABLE: {"0": -1, "1": 850, "2": -1}, EVENTS: {"0": 101, "1": 3}}

    source.assert_same(
        subscribe=f"{TABLE},{EVENTS}",
        startingOffsets=json.dumps(start),
        endingOffsets=json.dumps(end),
    )


def test_times_mean_what_they_mean_to_the_kafka_source(source: Source) -> None:
    times = {"startingTimestamp": "1700000050500", "endingTimestamp": "1700000070000"}
    source.assert_same(assign=json.dumps({TABLE: [0, 1]}), **times)
    by_partition = json.dumps({TABLE: {"0": 1_700_000_050_000, "1": 1_700_000_060_000}})
    source.assert_same(assign=json.dumps({TABLE: [0, 1]}), startingOffsetsByTimestamp=by_partition)


def test_a_pattern_chooses_topics_and_without_one_internal_topics_are_left_out(
    source: Source,
) -> None:
    assert source.assert_same(subscribePattern="ev.*") > 0
    assert {row.topic for row in source.files().select("topic").distinct().collect()} == {
        TABLE,
        EVENTS,
    }


def test_a_folder_of_a_topic_or_a_partition_is_that_topic_or_partition(
    broker: BrokerProcess,
) -> None:
    folder = next(broker.data_dir.glob(f"{EVENTS}.*"))

    assert planned(broker, folder) == planned(broker, subscribe=EVENTS)
    assert planned(broker, folder / "1") == planned(broker, assign=json.dumps({EVENTS: [1]}))


def test_columns_may_be_chosen_by_a_schema(source: Source) -> None:
    reader = source.session.read.format("kompakt").schema("offset BIGINT, key BINARY")
    some = reader.option("subscribe", EVENTS).load(str(source.broker.data_dir))

    assert sorted(some.collect()) == sorted(
        source.kafka(subscribe=EVENTS)["offset", "key"].collect()
    )


CONDITIONS = (
    "partition IN (0, 2) AND offset >= 850 AND offset < 950",
    "offset IN (80, 81, 99) OR topic = 'table' AND offset BETWEEN 890 AND 910",
    "topic = 'events' AND partition <=> 0 AND offset > 90 AND offset <= 95",
    "timestamp >= '2023-11-14 22:14:10' AND timestamp < '2023-11-14 22:14:20'",
    "timestamp > '2023-11-14 22:14:10.0005' AND timestamp <= '2023-11-14 22:14:20.0005'",
    "timestamp IN ('2023-11-14 22:14:30', '2023-11-14 22:14:31.0005')",
    "topic IN ('table') AND NOT (partition = 0) AND key IS NOT NULL AND value IS NULL",
    "partition > 5",
)


def test_a_predicate_chooses_the_rows_that_it_chooses_of_all(source: Source) -> None:
    # As columns they are not handed down: Spark says of each row what holds.
    answers = [f"({condition}) AS holds_{n}" for n, condition in enumerate(CONDITIONS)]
    rows = rows_of(source.files().selectExpr("topic", "partition", "offset", *answers))

    for number, condition in enumerate(CONDITIONS):
        found = rows_of(source.files().where(condition).select("topic", "partition", "offset"))
        expected = [row[:3] for row in rows if row[f"holds_{number}"]]
        assert [tuple(row) for row in found] == expected, condition


def test_predicates_choose_segments_and_rows_in_the_source(source: Source) -> None:
    some = source.files().where("topic = 'events' AND partition = 0 AND offset >= 390")
    plan = some._jdf.queryExecution().executedPlan().toString()

    assert some.rdd.getNumPartitions() == 1
    assert "Filter (" not in plan


def test_a_session_that_takes_no_filters_reads_all_the_same(source: Source) -> None:
    from pipeline.source.segment_source import PUSHDOWN

    expected = rows_of(source.files(subscribe=EVENTS).where("offset < 100"))
    source.session.conf.set(PUSHDOWN, "false")
    assert rows_of(source.files(subscribe=EVENTS).where("offset < 100")) == expected


def test_spark_finds_the_source_without_being_told(source: Source) -> None:
    found = source.session._jsparkSession.sessionState().dataSourceManager()

    assert found.dataSourceExists("kompakt")


def test_the_connection_options_of_the_kafka_source_change_nothing(broker: BrokerProcess) -> None:
    connection = {
        "kafka__bootstrap__servers": "broker:9094",
        "kafka__security__protocol": "SASL_SSL",
        "kafka__sasl__jaas__config": "PlainLoginModule required;",
        "kafka__ssl__truststore__location": "/etc/kafka/ca.pem",
    }

    assert planned(broker, subscribe=TABLE, **connection) == planned(broker, subscribe=TABLE)


REFUSED: tuple[tuple[dict[str, str], str], ...] = (
    ({"kafka__max__poll__records": "1"}, "there is no option 'kafka.max.poll.records'"),
    ({"startingOffset": "earliest"}, "there is no option 'startingOffset'"),
    ({"subscribe": "nothing"}, "has no topic nothing; .* created a moment ago .* then read again"),
    ({"subscribe": TABLE, "startingOffsets": '{"table": {"0": 5}}'}, "partition 1 of table is missing"),
    ({"subscribe": EVENTS, "startingOffsets": '{"events": {"0": 5, "1": 0}}'}, "failOnDataLoss=false"),
    ({"subscribe": EVENTS, "startingTimestamp": "9000000000000"}, "no record of the starting time"),
    ({"subscribe": EVENTS, "kafka__isolation__level": "none"}, "isolation.level is read_committed or"),
)  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_cannot_be_read_is_said_in_a_sentence(
    broker: BrokerProcess, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises((BadOption, OffsetsGone), match=sentence):
        planned(broker, **options)


def test_spark_shows_the_sentence(source: Source) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="has no topic nothing"):
        source.files(subscribe="nothing").collect()


def test_with_fail_on_data_loss_off_what_is_there_is_read(broker: BrokerProcess) -> None:
    start = json.dumps({EVENTS: {"0": 5, "1": 0}})

    some = planned(broker, subscribe=EVENTS, startingOffsets=start, failOnDataLoss="false")

    assert [replace(each, fail_on_data_loss=True) for each in some] == planned(
        broker, subscribe=EVENTS
    )


def test_a_stream_is_told_to_follow_the_broker() -> None:
    from pipeline.source.segment_source import SegmentSource

    with pytest.raises(BadOption, match="a stream follows the broker"):
        SegmentSource({"path": "/data"}).streamReader(None)


def test_damage_is_an_error_with_file_and_position(source: Source, tmp_path: Path) -> None:
    import shutil

    from pyspark.errors import PySparkException

    folder = next(source.broker.data_dir.glob(f"{EVENTS}.*")) / "1"
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    name = sorted(path.name for path in copy.glob("*.log"))[1]
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)

    with pytest.raises(PySparkException, match=rf"{name} is corrupt at byte \d+: .*CRC differs"):
        source.files(copy).collect()


@contextmanager
def kept_busy(work: Callable[[int], None]) -> Iterator[None]:
    """Repeat work in a thread while the body runs."""
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        number = 0
        try:
            while not stop.is_set():
                work(number)
                number += 1
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures


def test_a_table_is_right_while_the_broker_rolls_cleans_and_removes(source: Source) -> None:
    """What is not written again meanwhile is found.

    Of a key that is, its records below the end of the read may be cleaned away before they are read, as
    a consumer would find them: what is found was once its value.
    """
    from pyspark.sql import functions as F

    bootstrap = source.broker.bootstrap_servers
    create_topic(bootstrap, BUSY, partitions=1, config=COMPACTED | {"delete.retention.ms": "0"})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
    acknowledged = dict.fromkeys(range(400), 0)

    def write(keys: Iterable[int], round_: int) -> None:
        for key in keys:
            producer.produce(BUSY, key=b"%d" % key, value=b"%d" % round_ + bytes(300))
        assert producer.flush(30) == 0
        acknowledged.update(dict.fromkeys(keys, round_))
        time.sleep(0.02)

    write(range(400), 0)
    names = set[str]()
    with kept_busy(lambda number: write(range(200), number + 1)):
        for reads in itertools.count(1):
            frame = source.files(subscribe=BUSY, maxPartitionBytes="30000")
            last = frame.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
            found = {int(row.key): int(row.value[:-300]) for row in last.collect()}
            assert {key: found.get(key) for key in range(200, 400)} == dict.fromkeys(
                range(200, 400), 0
            )
            assert all(round_ <= acknowledged[key] + 1 for key, round_ in found.items())
            folder = next(source.broker.data_dir.glob(f"{BUSY}.*")) / "0"
            there = {path.name for path in folder.glob("*.log")}
            # Segments were rolled, and others removed, between two looks.
            if reads >= READS_MIN and len(names | there) > SEGMENTS_MIN and names - there:
                break
            names |= there
