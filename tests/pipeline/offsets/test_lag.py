"""Commits of a stream's progress, against a real broker and Spark; what is rare there, without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic, deliver_all
from tests.harness.typed_commands import TypedCommands

pytest.importorskip("pyspark")

from pipeline.offsets import lag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

Taken = dict[tuple[str, int], int]
"""(Topic, partition) -> the offset after the last record that the table has taken."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        yield started


class Stream:
    """A query of twenty offsets a micro-batch, to the end of the topic; its table is in memory."""

    def __init__(self, session: SparkSession, broker: BrokerProcess, topic: str, folder: Path):
        self.session = session
        self.checkpoint = str(folder / topic)
        self.taken: Taken = {}
        self.fails_at: int | None = None
        self.options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20",
        }

    def take(self, batch: DataFrame, number: int) -> None:
        rows = batch.select("topic", "partition", "offset").collect()
        if number == self.fails_at:
            raise OSError("no space left")
        for topic, partition, offset in rows:
            self.taken[topic, partition] = max(self.taken.get((topic, partition), 0), offset + 1)

    def run(self) -> None:
        records = self.session.readStream.format("kafka").options(**self.options).load()
        writer = records.writeStream.foreachBatch(self.take).trigger(availableNow=True)
        writer.option("checkpointLocation", self.checkpoint).start().awaitTermination()


def topic_with_records(broker: BrokerProcess, topic: str) -> None:
    from confluent_kafka import Producer

    create_topic(broker.bootstrap_servers, topic, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    deliver_all(producer, topic, ((b"%d" % number, b"v") for number in range(100)))


def described(broker: BrokerProcess, group: str) -> dict[str, Any]:
    """The group as `kompakt groups describe` shows it."""
    (found,) = TypedCommands(broker).json("groups", "describe", group)["groups"]
    return dict(found)


def committed(broker: BrokerProcess, group: str) -> Taken:
    rows = described(broker, group)["partitions"]
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in rows}


@pytest.mark.spark
def test_a_streams_lag_is_seen_as_that_of_a_group_and_never_runs_ahead_of_its_table(
    session: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic_with_records(broker, "orders")
    stream = Stream(session, broker, "orders", tmp_path)
    ahead: list[lag.Offsets] = []
    commit = lag.KafkaGroup.commit

    def watched(group: lag.KafkaGroup, offsets: lag.Offsets) -> None:
        if any(offset > stream.taken.get(part, 0) for part, offset in offsets.items()):
            ahead.append(dict(offsets))
        commit(group, offsets)

    monkeypatch.setattr(lag.KafkaGroup, "commit", watched)

    stream.fails_at = 3
    with pytest.raises(Exception, match="no space left"), committing(stream, "tables"):
        stream.run()
    assert committed(broker, "tables") == stream.taken
    assert described(broker, "tables")["lag"] == 100 - sum(stream.taken.values()) > 0

    stream.fails_at = None
    with committing(stream, "tables"):
        stream.run()
    assert committed(broker, "tables") == stream.taken
    assert described(broker, "tables")["lag"] == 0
    assert ahead == []


@pytest.mark.spark
def test_a_commit_that_the_broker_refuses_is_said_once_and_stops_nothing(
    session: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic_with_records(broker, "prices")
    stream = Stream(session, broker, "prices", tmp_path)
    said: list[str] = []

    with member_of(broker, "busy", "prices"), committing(stream, "busy", said.append):
        stream.run()

    assert sum(stream.taken.values()) == 100
    (sentence,) = said
    assert sentence.startswith(
        "the table is kept up to date, but its offsets cannot be committed: Unknown"
    )


def committing(stream: Stream, group: str, say: Callable[[str], None] = print) -> Any:
    return lag.committing(stream.session, group, stream.options, say=say)


class member_of:
    """Another client is a member of the group."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
        )
        self._consumer.subscribe([topic])

    def __enter__(self) -> None:
        while not self._consumer.assignment():
            self._consumer.poll(0.05)

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


class Group:
    """Takes commits, or refuses them with a reason."""

    def __init__(self) -> None:
        self.commits: list[Taken] = []
        self.refuses: str | None = None

    def commit(self, offsets: lag.Offsets) -> None:
        if self.refuses is not None:
            raise lag.CommitFailed(self.refuses)
        self.commits.append(dict(offsets))


def progress(offsets: str | None, description: str = "KafkaV2[Subscribe[t]]") -> Any:
    source = SimpleNamespace(description=description, endOffset=offsets)
    return SimpleNamespace(progress=SimpleNamespace(sources=[source]))


def quiet(_: str) -> None:
    """Say nothing."""


def test_the_same_offsets_are_committed_once_until_the_broker_may_forget_them() -> None:
    now = [10_000.0]
    group = Group()
    listener = lag.ProgressCommits(group, quiet, clock=lambda: now[0])

    listener.onQueryProgress(progress('{"t":{"0":5}}'))
    listener.onQueryProgress(progress('{"t":{"0":5}}'))
    listener.onQueryIdle(None)
    assert group.commits == [{("t", 0): 5}]

    now[0] += lag.REPEAT_SECONDS
    listener.onQueryIdle(None)
    assert group.commits == [{("t", 0): 5}] * 2


def test_what_failed_is_committed_later_and_both_are_said_once() -> None:
    group, said = Group(), list[str]()
    listener = lag.ProgressCommits(group, said.append)

    group.refuses = "away"
    listener.onQueryProgress(progress('{"t":{"0":5}}'))
    listener.onQueryProgress(progress('{"t":{"0":7}}'))
    group.refuses = None
    listener.onQueryIdle(None)

    assert group.commits == [{("t", 0): 7}]
    assert said == [
        "the table is kept up to date, but its offsets cannot be committed: away",
        "commits to the group work again",
    ]


@pytest.mark.parametrize(
    ("offsets", "description"),
    [("null", "KafkaV2[Subscribe[t]]"), ('{"t":{"0":-2}}', "KafkaV2[Subscribe[t]]"), ("7", "Rate")],
    ids=["no_end", "no_offset", "not_kafka"],
)
def test_progress_without_offsets_of_kafka_commits_nothing(offsets: str, description: str) -> None:
    group = Group()

    lag.ProgressCommits(group, quiet).onQueryProgress(progress(offsets, description))

    assert group.commits == []


def test_the_clients_options_are_the_sources() -> None:
    options: Mapping[str, str] = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}

    properties = lag.client_properties(options)

    assert properties["bootstrap.servers"] == "h:1"
    assert "subscribe" not in properties
