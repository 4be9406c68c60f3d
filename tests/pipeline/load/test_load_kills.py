"""A load that is killed at any moment, and typed again, leaves each record in the topic once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.clients import ConfluentClient
from tests.harness.process_tree import below, kill, wait_until_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

ROWS = 450_000
TOPIC, PARTITIONS = "numbers", 3
KILLS = 4
RECORDS_MAX = 150_000
"""A load is killed after at most this number of records, some of which have been committed."""
SECONDS_MAX = 600


class Command:
    """`kompakt pipeline load`, as a process with all that Spark starts below it."""

    def __init__(self, broker: BrokerProcess, table: Path) -> None:
        words = ["pipeline", "load", "--from", str(table), "--from-format", "parquet"]
        words += ["--topic", TOPIC, "--create", str(PARTITIONS), "--key", "id", "--json"]
        words += ["--bootstrap-server", broker.bootstrap_servers]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli", *words],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        """Kill it with all processes that it has started."""
        children = below(self.process.pid)
        for pid in [self.process.pid, *children]:
            kill(pid)
        wait_until_gone(children)
        self.process.communicate()
        assert self.process.returncode == -signal.SIGKILL

    def result(self) -> dict[str, int]:
        out, errors = self.process.communicate(timeout=SECONDS_MAX)
        assert self.process.returncode == 0, errors
        found: dict[str, int] = json.loads(out)
        return found


def end_offsets(broker: BrokerProcess) -> int:
    """Returns the sum of the topic's end offsets, with what is not committed; 0 if there is no topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
    try:
        if TOPIC not in consumer.list_topics(timeout=10).topics:
            return 0
        parts = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts)
    finally:
        consumer.close()


def reaches(broker: BrokerProcess, end: int, command: Command) -> bool:
    """Wait until the topic's end offsets sum up to `end`. Returns whether the load still runs then."""
    deadline = time.monotonic() + SECONDS_MAX
    while end_offsets(broker) < end and command.process.poll() is None:
        assert time.monotonic() < deadline, f"no {end} records within {SECONDS_MAX} s"
        time.sleep(0.05)
    return command.process.poll() is None


@pytest.fixture(scope="module")
def table(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "numbers"
    session.range(ROWS).selectExpr("id", "concat('row ', id) AS text").write.parquet(str(path))
    return path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    # No pass may hide a second record of a key.
    with BrokerProcess(tmp_path, {"log.cleaner.enable": "false"}) as started:
        yield started


def check_each_row_once(broker: BrokerProcess, table: Path) -> None:
    assert Command(broker, table).result()["unchanged"] == ROWS
    found = list(ConfluentClient().consume(broker.bootstrap_servers, [TOPIC]))
    values = {key: value for _, _, _, key, value in found}
    assert Counter(key for _, _, _, key, _ in found) == Counter(values.keys())
    assert values == {b"%d" % n: b'{"id":%d,"text":"row %d"}' % (n, n) for n in range(ROWS)}


def test_a_load_that_is_killed_and_typed_again_writes_each_record_once(
    broker: BrokerProcess, table: Path
) -> None:
    moments = random.Random(7)
    command, kills = Command(broker, table), 0
    while kills < KILLS and reaches(
        broker, end_offsets(broker) + moments.randrange(1, RECORDS_MAX), command
    ):
        command.kill()
        command, kills = Command(broker, table), kills + 1
    last = command.result()
    assert kills > 1
    assert last["new"] + last["unchanged"] == ROWS
    assert last["unchanged"] > 0, "no kill left a task that had committed"
    check_each_row_once(broker, table)


def test_a_load_continues_when_its_broker_was_killed_and_started_again(
    broker: BrokerProcess, table: Path
) -> None:
    command = Command(broker, table)
    for end in (20_000, 200_000):
        assert reaches(broker, end, command)
        broker.kill()
        broker.start()
    assert command.result()["new"] == ROWS
    check_each_row_once(broker, table)
