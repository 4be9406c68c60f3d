"""A compacted topic says what a table says: only what differs is written, and only once."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pipeline.load.difference import Kind, Plan
from pipeline.load.formats import RecordFormat, SourceFormat
from pipeline.load.transaction import LoadRecord, Target, send
from pipeline.offsets.cut import TableRefused
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.spark.job import cause
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.load.job import Load

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

COMPACTED = {"cleanup.policy": "compact"}
Rows = Sequence[tuple[int | None, str | None]]
SCHEMA = "id INT, city STRING"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        yield started


def into(broker: BrokerProcess, topic: str, **changes: Any) -> Load:
    from pipeline.load.job import Load
    from pipeline.load.records import RecordShape

    source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=(topic,))
    return replace(Load(topic=source, shape=RecordShape(key=["id"])), **changes)


def loaded(session: SparkSession, load: Load, rows: Rows) -> Mapping[Kind, int]:
    """Load these rows. Returns the plan, which must be what was written."""
    from pipeline.load.job import planned, write
    from pipeline.load.topic import end_earlier_loads

    end_earlier_loads(session, load.topic)
    with planned(session, session.createDataFrame(list(rows), SCHEMA), load) as (found, plan):
        done = write(session, found, plan, load)
    assert {**plan.counts, Kind.UNCHANGED: 0} == {**done, Kind.UNCHANGED: 0}
    return plan.counts


def plan_only(session: SparkSession, load: Load, rows: Rows) -> Plan:
    from pipeline.load.job import planned

    with planned(session, session.createDataFrame(list(rows), SCHEMA), load) as (_, plan):
        return plan


def counts(*, new: int = 0, changed: int = 0, deleted: int = 0, unchanged: int = 0) -> object:
    return {
        Kind.NEW: new,
        Kind.CHANGED: changed,
        Kind.DELETED: deleted,
        Kind.UNCHANGED: unchanged,
    }


def records(load: Load) -> list[tuple[int, bytes | None, Any]]:
    """Returns the partition, key and parsed value of each committed record, in order."""
    (topic,) = load.topic.topics
    found = ConfluentClient().consume(load.topic.bootstrap_servers, [topic])
    return [
        (partition, key, None if value is None else json.loads(value))
        for _, partition, _, key, value in sorted(found, key=lambda each: each[1:3])
    ]


def topics(broker: BrokerProcess) -> Collection[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return set(admin.list_topics(timeout=10).topics)


def test_what_is_new_differs_or_is_gone_is_written_and_nothing_else(
    session: SparkSession, broker: BrokerProcess
) -> None:
    load = into(broker, "cities", create_partitions=3, sync=True, records_per_task=3)
    first = [(1, "Bonn"), (2, None), (3, "Rome"), (4, "Oslo"), (5, "Lima")]
    assert loaded(session, load, first) == counts(new=5)
    assert loaded(session, load, first) == counts(unchanged=5)
    assert {key: value for _, key, value in records(load)} == {
        b"%d" % number: {"id": number, "city": city} for number, city in first
    }

    assert len(records(load)) == 5

    second = [(1, "Bonn"), (2, "Graz"), (3, "Rome"), (6, "Kyiv")]
    planned = plan_only(session, load, second)
    assert planned.counts == counts(new=1, changed=1, deleted=2, unchanged=2)
    assert planned.records == 4
    assert planned.bytes_count == len('6{"id":6,"city":"Kyiv"}2{"id":2,"city":"Graz"}45')
    assert loaded(session, load, second) == planned.counts
    assert len(records(load)) == 9
    kept = replace(load, sync=False)
    assert loaded(session, kept, [(7, "Brno")]) == counts(new=1)
    assert {key: value for _, key, value in records(load) if value is not None}.keys() >= {b"7"}


def test_a_key_is_written_where_the_topic_has_it(
    session: SparkSession, broker: BrokerProcess
) -> None:
    create_topic(broker.bootstrap_servers, "moved", partitions=4, config=COMPACTED)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition, key in [(0, b"1"), (3, b"1"), (2, b"2"), (1, b"3")]:
        producer.produce("moved", key=key, value=b"{}", partition=partition)
    producer.produce("moved", key=b"3", value=None, partition=1)
    assert producer.flush(30) == 0
    load = into(broker, "moved", sync=True)
    assert loaded(session, load, [(1, "x"), (3, "z")]) == counts(new=1, changed=2, deleted=1)
    row = {"id": 1, "city": "x"}
    found = [each for each in records(load) if each[1] != b"3" and each[2] != {}]
    assert found == [(0, b"1", row), (2, b"2", None), (3, b"1", row)]


def test_an_earlier_load_cannot_commit_any_more(
    session: SparkSession, broker: BrokerProcess
) -> None:
    from pipeline.load.transaction import producer_of

    load = into(broker, "overtaken", create_partitions=1)
    rows = [(1, "Bonn")]
    assert loaded(session, load, rows) == counts(new=1)
    earlier = Target(bootstrap_servers=broker.bootstrap_servers, topic="overtaken", run="earlier")
    producer = producer_of(earlier, 0)
    producer.init_transactions()
    producer.begin_transaction()
    sent = [LoadRecord(b"9", b"{}", None, "new")]
    send(producer, "overtaken", sent)
    assert loaded(session, load, rows) == counts(unchanged=1)
    with pytest.raises(Exception, match=r"[Ff]enced|epoch"):
        producer.commit_transaction()
    producer.close(timeout=0)
    assert [key for _, key, _ in records(load)] == [b"1"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([(None, "a"), (1, "b"), (None, "c")], "rows without a key: 2"),
        ([(1, "a"), (2, "b"), (1, "c"), (1, "d")], "several rows have the key '1': 3"),
    ],
)
def test_rows_that_are_no_state_are_refused(
    rows: Rows, says: str, session: SparkSession, broker: BrokerProcess
) -> None:
    load = into(broker, "refused", create_partitions=1)
    with pytest.raises(TableRefused, match=says):
        loaded(session, load, rows)
    assert "refused" not in topics(broker), "a topic was created for a table that is refused"


def test_a_value_that_would_delete_its_key_is_refused(
    session: SparkSession, broker: BrokerProcess
) -> None:
    from pipeline.load.records import RecordShape

    shape = RecordShape(key=["id"], value=["city"], value_format=RecordFormat.TEXT)
    load = into(broker, "refused", create_partitions=1, shape=shape)
    with pytest.raises(TableRefused, match="the value of the key '2' is null, which would delete"):
        loaded(session, load, [(1, "a"), (2, None)])
    assert "refused" not in topics(broker)


def test_a_topic_that_would_not_keep_the_state_is_refused(
    session: SparkSession, broker: BrokerProcess
) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, "events", partitions=1, config={"cleanup.policy": "delete"})
    ranked = {**COMPACTED, "compaction.strategy": "header", "compaction.strategy.header": "v"}
    create_topic(bootstrap, "ranked", partitions=1, config=ranked)
    for topic, says in [
        ("events", "events has cleanup.policy=delete, so it would lose"),
        ("ranked", "ranked has compaction.strategy=.*have no headers"),
        ("missing", "missing does not exist: create it by --create PARTITIONS"),
    ]:
        with pytest.raises(TableRefused, match=says):
            loaded(session, into(broker, topic), [(1, "a")])


def test_columns_become_keys_and_values_in_either_format(session: SparkSession) -> None:
    from pipeline.load.records import RecordShape, records_of

    rows = session.sql("SELECT 1 id, 'x' AS `a b`, X'00FF' raw, CAST(NULL AS STRING) none")

    def made(**shape: Any) -> tuple[bytes | None, bytes | None]:
        (row,) = records_of(rows, RecordShape(**shape)).collect()
        return tuple(None if each is None else bytes(each) for each in row)  # type: ignore[return-value]

    text, both = RecordFormat.TEXT, RecordFormat.JSON
    assert made(key=["id"], value=["none", "a b"]) == (b"1", b'{"none":null,"a b":"x"}')
    assert made(key=["raw"], value=["raw"], value_format=text) == (b"\x00\xff", b"\x00\xff")
    assert made(key=["id", "none"], key_format=both, value=["id"])[0] == b'{"id":1,"none":null}'
    assert made(key=["none"], key_format=both, value=["id"])[0] is None
    with pytest.raises(TableRefused, match="the table has no column city, town: it has id, a b"):
        made(key=["city"], value=["town"])
    with pytest.raises(TableRefused, match="--key-format text needs one column"):
        RecordShape(key=["id", "raw"])


def test_tables_in_each_format_are_read(session: SparkSession, tmp_path: Path) -> None:
    from pipeline.load.source import TableToLoad

    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "1.csv").write_text("id,city\n1,Bonn\n2,\n")
    (tmp_path / "rows.json").write_text('{"id": 1, "city": "Bonn"}\n')
    session.createDataFrame([(1, "Bonn")], SCHEMA).write.parquet(str(tmp_path / "parquet"))

    def rows(path: str, source_format: SourceFormat, **more: Any) -> list[tuple[Any, ...]]:
        table = TableToLoad(path=str(tmp_path / path), source_format=source_format, **more)
        return [tuple(row) for row in table.rows(session).collect()]

    assert rows("csv", SourceFormat.CSV) == [("1", "Bonn"), ("2", None)]
    assert rows("csv", SourceFormat.CSV, schema=SCHEMA, where="id > 1") == [(2, None)]
    assert rows("rows.json", SourceFormat.JSON, select=["id", "upper(city) c"]) == [(1, "BONN")]
    assert rows("parquet", SourceFormat.PARQUET) == [(1, "Bonn")]
    with pytest.raises(TableRefused, match=r"absent.*PATH_NOT_FOUND|absent.*does not exist"):
        rows("absent", SourceFormat.PARQUET)
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|MALFORMED"):
        rows("csv", SourceFormat.CSV, schema="id INT, city INT")


def test_a_failure_in_a_task_is_one_sentence(session: SparkSession, broker: BrokerProcess) -> None:
    load = into(broker, "failed", create_partitions=1)
    with pytest.raises(Exception, match="LoadFailed") as failed:
        loaded(session, load, [(1, "Bonn"), (2, "x" * 2_000_000)])
    assert cause(failed.value).startswith(f"failed at {broker.bootstrap_servers}: ")
    assert records(load) == []
