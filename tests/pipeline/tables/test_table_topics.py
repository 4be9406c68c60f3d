"""Tables of a real broker's topics: a batch, then a stream from its cut; and topics that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from confluent_kafka.admin import AdminClient

from pipeline.offsets.cut import Cut, TableRefused
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.tables.payload_options import Payload
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient, create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.tables.formats.parquet_table import ParquetTable

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

Pairs: TypeAlias = Sequence[tuple[bytes, bytes | None]]
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}) as started:
        yield started


@pytest.fixture
def table(session: SparkSession, tmp_path: Path) -> ParquetTable:
    from pipeline.tables.formats.parquet_table import ParquetTable

    return ParquetTable(session, str(tmp_path / "table"))


def source(broker: BrokerProcess, *topics: str) -> KafkaSource:
    return KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=topics)


def produce(broker: BrokerProcess, topic: str, pairs: Pairs) -> None:
    ConfluentClient().produce(broker.bootstrap_servers, {topic: "zstd"}, list(pairs))


def delete_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(20)


def values(table: ParquetTable) -> dict[tuple[str, bytes], bytes]:
    return {(r["_topic"], bytes(r["key"])): bytes(r["value"]) for r in table.read().collect()}


def seen_by_streams(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Collects what micro-batches bring: topic, partition, offset."""
    from pipeline.tables import job as table_job

    seen: list[tuple[str, int, int]] = []
    real: Callable[..., tuple[Cut | None, int]] = table_job.bring_in

    def noting(batch: DataFrame, *others: object) -> tuple[Cut | None, int]:
        rows = batch.select("topic", "partition", "offset").collect()
        seen.extend((r["topic"], r["partition"], r["offset"]) for r in rows)
        return real(batch, *others)

    monkeypatch.setattr(table_job, "bring_in", noting)
    return seen


def test_batch_and_stream_write_the_same_table_and_the_stream_goes_on_where_it_was(
    session: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.job import Pace, follow, write_whole

    create_topic(broker.bootstrap_servers, "steps", partitions=2, config=COMPACT)
    stepwise = ParquetTable(session, str(tmp_path / "stepwise"))
    first: Pairs = [(b"key-%d" % (n % 40), b"value-%d" % n) for n in range(1000)]
    produce(broker, "steps", first)
    follow(session, source(broker, "steps"), stepwise, Payload(), Pace(offsets_per_batch=300))
    assert values(stepwise) == {("steps", key): value for key, value in dict(first).items()}

    second: Pairs = [(b"key-3", None), (b"key-4", b"newer"), (b"key-99", b"new")]
    produce(broker, "steps", second)
    last = dict([*first, *second])
    expected = {("steps", key): value for key, value in last.items() if value is not None}
    follow(session, source(broker, "steps"), stepwise, Payload(), Pace())
    whole = ParquetTable(session, str(tmp_path / "whole"))
    write_whole(session, source(broker, "steps"), whole, Payload())
    assert values(stepwise) == values(whole) == expected


def test_a_stream_goes_on_exactly_at_the_cut_of_the_batch_before_it(
    session: SparkSession,
    broker: BrokerProcess,
    table: ParquetTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pipeline.tables.job import Pace, follow, write_whole

    topics = source(broker, "left", "right")
    for topic in topics.topics:
        create_topic(broker.bootstrap_servers, topic, partitions=1, config=COMPACT)
        produce(broker, topic, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    run = write_whole(session, topics, table, Payload())
    assert run.cut.offsets == {"left": {0: 3}, "right": {0: 3}}
    assert (run.records, run.micro_batches) == (6, 1)

    produce(broker, "left", [(b"b", None), (b"c", b"3")])
    seen = seen_by_streams(monkeypatch)
    follow(session, topics, table, Payload(), Pace())

    assert seen == [("left", 0, 3), ("left", 0, 4)]
    assert values(table) == {
        ("left", b"a"): b"2",
        ("left", b"c"): b"3",
        ("right", b"a"): b"2",
        ("right", b"b"): b"1",
    }
    held = table.held()
    assert held is not None
    assert held.offsets == {"left": {0: 5}, "right": {0: 3}}
    with pytest.raises(TableRefused, match="the table holds other topics: left"):
        follow(session, source(broker, "right"), table, Payload(), Pace())


def test_a_topic_that_is_not_there_or_was_made_anew_is_one_sentence(
    session: SparkSession, broker: BrokerProcess, table: ParquetTable
) -> None:
    from pipeline.tables.job import Pace, follow, write_whole

    with pytest.raises(TableRefused, match=r"^nowhere at 127.*UnknownTopicOrPartition") as refused:
        write_whole(session, source(broker, "nowhere"), table, Payload())
    assert "\n" not in str(refused.value)

    topics = source(broker, "again")
    create_topic(broker.bootstrap_servers, "again", partitions=1, config=COMPACT)
    follow(session, topics, table, Payload(), Pace())
    assert values(table) == {}
    delete_topic(broker, "again")
    create_topic(broker.bootstrap_servers, "again", partitions=1, config=COMPACT)
    with pytest.raises(TableRefused, match="again was deleted and created again"):
        follow(session, topics, table, Payload(), Pace())


def test_a_place_that_is_taken_and_a_schema_that_does_not_fit_are_refused(
    session: SparkSession, broker: BrokerProcess, table: ParquetTable, tmp_path: Path
) -> None:
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.job import Pace, follow, write_whole

    create_topic(broker.bootstrap_servers, "taken", partitions=1, config=COMPACT)
    produce(broker, "taken", [(b"a", b"1")])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs.txt").write_text("something")
    with pytest.raises(TableRefused, match="other data than one of our tables"):
        write_whole(
            session,
            source(broker, "taken"),
            ParquetTable(session, str(tmp_path / "full")),
            Payload(),
        )

    write_whole(session, source(broker, "taken"), table, Payload())
    produce(broker, "taken", [(b"b", b"2")])
    renamed = Payload(key_column="name")
    with pytest.raises(TableRefused, match="column key is binary in the table and missing"):
        follow(session, source(broker, "taken"), table, renamed, Pace())
