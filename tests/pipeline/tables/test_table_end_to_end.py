"""Tables of a topic that is written to and cleaned all the time, and whose broker is killed.

What a table holds is compared with a model of all that was acknowledged below its cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metrics import cleaner_names
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.clients import create_topic
from tests.harness.group_run import until
from tests.harness.keyed_writer import KeyedWriter
from tests.pipeline.table_model import Content, Record, below, content, model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.offsets.cut import Cut
    from pipeline.offsets.kafka_source import KafkaSource
    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

PARTITIONS = 2
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
BUSY_CLEANER = {"log.cleaner.backoff.ms": 20}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), BUSY_CLEANER) as started:
        yield started


@dataclass(frozen=True, slots=True)
class Seen:
    """A table as it was, and the offsets that it said it holds."""

    cut: Cut
    content: Content


def seen(table: Table) -> Seen:
    cut = table.held()
    assert cut is not None
    return Seen(cut, content(table))


def test_batch_and_stream_equal_the_model_while_the_topic_is_cleaned_and_its_broker_is_killed(
    session: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.formats.parquet_table import ParquetTable

    topic = "orders"
    create_topic(broker.bootstrap_servers, topic, partitions=PARTITIONS, config=COMPACTED)
    followed = DeltaTable(session, str(tmp_path / "followed"))
    whole = ParquetTable(session, str(tmp_path / "whole"))
    source = source_of(broker, topic)
    looks = []
    with KeyedWriter(broker.bootstrap_servers, topic, partitions=PARTITIONS, seed=1) as writer:
        for _ in range(2):
            follow_while_the_broker_is_killed(session, source, followed, broker)
            looks.append(seen(followed))
        write_whole(session, source, whole)
        looks.append(seen(whole))
        writer.stop()
        write_whole(session, source, whole)
        follow(session, source, followed)
        looks += [seen(whole), seen(followed)]

    for look in looks:
        refute_difference(look, writer.records)
    assert looks[-1].content == looks[-2].content == model(writer.records)
    until("the cleaner has work", lambda: superseded_records(broker) > 0, broker.tail)


def refute_difference(look: Seen, records: Sequence[Record]) -> None:
    """Check that a table is the model's at its cut, except for keys with newer records.

    Their last record below the cut may have been cleaned away before it was read.
    """
    held = look.cut.offsets
    newer = {
        (topic, part, key)
        for topic, part, offset, _, key, _ in records
        if offset >= held[topic][part]
    }
    expected = model(below(records, held))
    differ = {
        place
        for place in look.content.keys() | expected.keys()
        if look.content.get(place) != expected.get(place)
    }
    assert differ <= newer


def source_of(broker: BrokerProcess, topic: str) -> KafkaSource:
    from pipeline.offsets.kafka_source import KafkaSource

    return KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=(topic,))


def follow(session: SparkSession, source: KafkaSource, table: Table) -> None:
    from pipeline.tables import job as table_job
    from pipeline.tables.payload_options import Payload

    table_job.follow(session, source, table, Payload(), table_job.Pace(offsets_per_batch=2000))


def follow_while_the_broker_is_killed(
    session: SparkSession, source: KafkaSource, table: Table, broker: BrokerProcess
) -> None:
    with ThreadPoolExecutor(1) as beside:
        run = beside.submit(follow, session, source, table)
        broker.kill()
        broker.start()
        run.result()


def write_whole(session: SparkSession, source: KafkaSource, table: Table) -> None:
    from pipeline.tables import job as table_job
    from pipeline.tables.payload_options import Payload

    table_job.write_whole(session, source, table, Payload())


def superseded_records(broker: BrokerProcess) -> float:
    """How many records passes have left out since the broker's last start."""
    said = samples(
        broker.metrics(), cleaner_names.CLEANER_RECORDS.name, verdict="dropped_superseded"
    )
    return sum(said)
