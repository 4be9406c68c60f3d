"""kill -9 of the Spark driver inside micro-batches, and of the broker: the table is the model's.

A writer never rests, in transactions and without, and neither does the cleaner. Each history kills
the driver of `kompakt pipeline table stream` at random moments after its commits, sometimes only its
Python or its JVM, and its broker in between; then the stream continues to the end of the topic.

`KOMPAKT_TABLE_HISTORIES` sets how many there are, `KOMPAKT_TABLE_SEED` where they begin.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.keyed_writer import KeyedWriter
from tests.harness.table_driver import TableDriver, Victim
from tests.pipeline.table_model import content, model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_SEED = int(os.environ.get("KOMPAKT_TABLE_SEED", "1"))
HISTORIES = int(os.environ.get("KOMPAKT_TABLE_HISTORIES", "1"))
KILLS = 2
BATCH_SECONDS = 1.5
PARTITIONS = 2
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
BUSY_CLEANER = {"log.cleaner.backoff.ms": 20}

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + HISTORIES))
def test_a_table_whose_driver_and_broker_are_killed_is_the_models(
    session: SparkSession, tmp_path: Path, seed: int
) -> None:
    choices = random.Random(seed)
    with BrokerProcess(tmp_path / "broker", BUSY_CLEANER) as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, "orders", partitions=PARTITIONS, config=COMPACTED)
        driver = TableDriver(bootstrap, "orders", tmp_path / "table", tmp_path / "driver.log")
        with KeyedWriter(bootstrap, "orders", partitions=PARTITIONS, seed=seed) as writer, driver:
            for _ in range(KILLS):
                kill_driver_at_work(driver, broker, choices)
            writer.stop()
            follow_to_the_end(session, bootstrap, tmp_path / "table")

        assert found(session, tmp_path / "table") == model(writer.records)


def kill_driver_at_work(driver: TableDriver, broker: BrokerProcess, choices: random.Random) -> None:
    """Somewhere between two commits; in half of the cases the broker dies under it first."""
    driver.start()
    driver.wait_for_commits(choices.randint(1, 2))
    if choices.random() < 0.5:
        broker.kill()
        broker.start()
        driver.wait_for_commits(1)
    time.sleep(choices.uniform(0, BATCH_SECONDS))
    driver.kill(choices.choice(list(Victim)))


def follow_to_the_end(session: SparkSession, bootstrap: str, table: Path) -> None:
    from pipeline.offsets.kafka_source import KafkaSource
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.job import Pace, follow
    from pipeline.tables.payload_options import Payload

    source = KafkaSource(bootstrap_servers=bootstrap, topics=("orders",))
    follow(session, source, DeltaTable(session, str(table)), Payload(), Pace())


def found(session: SparkSession, table: Path) -> object:
    from pipeline.tables.formats.delta_table import DeltaTable

    return content(DeltaTable(session, str(table)))
