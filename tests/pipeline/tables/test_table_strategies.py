"""Tables of a real broker's topics whose records have versions (`compaction.strategy`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from pipeline.offsets.cut import TableRefused
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.tables.payload_options import Payload
from server.config.authorization_config import AUTHORIZERS
from tests.harness.broker_process import BrokerProcess
from tests.harness.client_record import ConsumedRecord
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.typed_commands import TypedCommands
from tests.pipeline.table_model import content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.parquet_table import ParquetTable

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

STRATEGIES: Mapping[str, Mapping[str, str]] = {
    "by-offset": {},
    "by-time": {"compaction.strategy": "timestamp"},
    "by-header": {"compaction.strategy": "header", "compaction.strategy.header": "version"},
}
TIME_MS = 1_700_000_000_000
SENT: list[tuple[bytes, bytes | None, int]] = [
    (b"late", b"2", 2), (b"late", b"1", 1),
    (b"equal", b"1", 1), (b"equal", b"2", 1),
    (b"deleted", b"1", 1), (b"deleted", None, 2), (b"deleted", b"late", 1),
    (b"alive", b"2", 2), (b"alive", None, 1),
]  # fmt: skip
"""Key, value, version: the seconds of the timestamp, and the header."""
BY_VERSION = {b"late": (0, b"2"), b"equal": (3, b"2"), b"alive": (7, b"2")}
BY_OFFSET = {b"late": (1, b"1"), b"equal": (3, b"2"), b"deleted": (6, b"late")}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}) as started:
        for topic, config in STRATEGIES.items():
            create_topic(
                started.bootstrap_servers, topic, config={"cleanup.policy": "compact", **config}
            )
            send(started, topic)
        yield started


def send(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value, version in SENT:
        producer.produce(
            topic,
            key=key,
            value=value,
            timestamp=TIME_MS + 1000 * version,
            headers=[("version", struct.pack(">q", version))],
        )
    assert producer.flush(30) == 0


def read(broker: BrokerProcess, topic: str) -> list[ConsumedRecord]:
    return list(ConfluentClient().consume(broker.bootstrap_servers, [topic]))


@pytest.fixture
def table(session: SparkSession, tmp_path: Path) -> ParquetTable:
    from pipeline.tables.formats.parquet_table import ParquetTable

    return ParquetTable(session, str(tmp_path / "table"))


def source(broker: BrokerProcess, *topics: str) -> KafkaSource:
    return KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=topics)


def test_a_batch_ranks_each_topic_by_its_own_strategy_before_and_after_cleaning(
    session: SparkSession, broker: BrokerProcess, table: ParquetTable
) -> None:
    from pipeline.tables.job import write_whole

    expected = {
        (topic, 0, key): row
        for topic in STRATEGIES
        for key, row in (BY_OFFSET if topic == "by-offset" else BY_VERSION).items()
    }
    write_whole(session, source(broker, *STRATEGIES), table, Payload())
    assert content(table) == expected

    for topic in STRATEGIES:
        TypedCommands(broker).told("compact", "now", topic)
        assert len(read(broker, topic)) < len(SENT)
    write_whole(session, source(broker, *STRATEGIES), table, Payload())
    assert content(table) == expected


@pytest.mark.parametrize("topic", ["by-time", "by-header"])
def test_a_stream_of_a_topic_with_versions_is_refused(
    session: SparkSession, broker: BrokerProcess, table: ParquetTable, topic: str
) -> None:
    from pipeline.tables.job import Pace, follow, write_whole

    topics = source(broker, "by-offset", topic)
    reason = (
        f"{topic} has compaction.strategy=.*; rewrite the table with `kompakt pipeline table batch`"
    )

    with pytest.raises(TableRefused, match=reason):
        follow(session, topics, table, Payload(), Pace())
    assert table.held() is None

    cut = write_whole(session, topics, table, Payload()).cut
    with pytest.raises(TableRefused, match=reason):
        follow(session, topics, table, Payload(), Pace())
    assert table.held() == cut


def test_a_topic_without_versions_is_read_without_headers(
    session: SparkSession, broker: BrokerProcess
) -> None:
    from pipeline.offsets.kafka_offsets import ask_offsets
    from pipeline.tables.job import ranked_records
    from pipeline.tables.latest import COLUMNS

    for topics, columns in ((["by-offset"], COLUMNS), (["by-time"], (*COLUMNS, "version"))):
        topic_source = source(broker, *topics)
        cut = ask_offsets(session, topic_source).cut()
        assert ranked_records(session, topic_source, cut).columns == list(columns)


def test_headers_are_read_where_they_rank_even_if_an_option_leaves_them_out(
    session: SparkSession, broker: BrokerProcess, table: ParquetTable
) -> None:
    from pipeline.tables.job import write_whole

    without = KafkaSource(
        bootstrap_servers=broker.bootstrap_servers,
        topics=("by-header",),
        options={"includeheaders": "false"},
    )

    write_whole(session, without, table, Payload())

    assert content(table) == {("by-header", 0, key): row for key, row in BY_VERSION.items()}


def test_the_strategies_of_topics_that_are_not_there_are_refused(
    session: SparkSession, broker: BrokerProcess
) -> None:
    from pipeline.offsets.topic_settings import topic_strategies

    with pytest.raises(TableRefused, match=r"cannot read the configuration of by-time, nowhere"):
        topic_strategies(session, source(broker, "by-time", "nowhere"))


def test_a_user_who_may_not_read_the_configuration_is_refused_and_learns_why(
    session: SparkSession, tmp_path: Path, table: ParquetTable
) -> None:
    from pipeline.tables.job import Pace, follow, write_whole

    everyone = {"authorizer.class.name": AUTHORIZERS[0], "allow.everyone.if.no.acl.found": "true"}
    with BrokerProcess(tmp_path / "broker", everyone) as broker:
        create_topic(broker.bootstrap_servers, "secret", config=STRATEGIES["by-time"])
        send(broker, "secret")
        # Who may Read may also Describe.
        allow(broker, "secret", AclOperation.READ)
        topics = source(broker, "secret")
        reason = "a user needs DescribeConfigs on the topics.*TopicAuthorizationException"
        with pytest.raises(TableRefused, match=reason):
            write_whole(session, topics, table, Payload())
        with pytest.raises(TableRefused, match=reason):
            follow(session, topics, table, Payload(), Pace())

        allow(broker, "secret", AclOperation.DESCRIBE_CONFIGS)
        write_whole(session, topics, table, Payload())
    assert content(table) == {("secret", 0, key): row for key, row in BY_VERSION.items()}


def allow(broker: BrokerProcess, topic: str, operation: AclOperation) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([acl])[acl].result(20)
