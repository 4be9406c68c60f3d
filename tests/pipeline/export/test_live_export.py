"""`kompakt export` beside a broker that is written to and cleans, killed, and read by others."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.exported_log import CATALOG, FORMATS, NAME, catalog_properties, rows_in
from tests.harness.keyed_writer import KeyedWriter
from tests.pipeline.table_model import below, model

PARTITIONS = 2
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
BUSY_CLEANER = {"log.cleaner.backoff.ms": 20}
EXPORTS = 4
KILLS = 3

pytestmark = pytest.mark.crash


def command(kind: str, data: Path, folder: Path) -> list[str]:
    export = [sys.executable, "-m", "cli", "export", "orders", "--data-dir", str(data), "--json"]
    if kind != "iceberg":
        return [*export, "--format", kind, "--to", str(folder / kind)]
    properties = catalog_properties(folder).items()
    export += ["--format", kind, "--to", NAME, "--catalog", CATALOG]
    return export + [f"--catalog-property={name}={each}" for name, each in properties]


def exported(kind: str, data: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        command(kind, data, folder), check=True, stdout=subprocess.PIPE, timeout=120
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def offsets_of(answer: dict[str, Any]) -> dict[str, dict[int, int]]:
    return {
        topic: {int(partition): offset for partition, offset in each["offsets"].items()}
        for topic, each in answer["topics"].items()
    }


def test_each_export_is_exact_while_the_topic_is_written_and_cleaned(tmp_path: Path) -> None:
    """At the offsets that it names, though passes drop what is outranked beyond them."""
    found = []
    with BrokerProcess(tmp_path / "broker", BUSY_CLEANER) as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, "orders", partitions=PARTITIONS, config=COMPACTED)
        with KeyedWriter(bootstrap, "orders", partitions=PARTITIONS, seed=1) as writer:
            wait_for(lambda: len(writer.records) > 200)
            for number in range(EXPORTS):
                kind = FORMATS[number % len(FORMATS)]
                offsets = offsets_of(exported(kind, broker.data_dir, tmp_path / "tables"))
                found.append((offsets, rows_in(kind, tmp_path / "tables")))
            writer.stop()
    for offsets, rows in found:
        expected = model(below(writer.records, offsets))
        assert rows == {(partition, key): row for (_, partition, key), row in expected.items()}


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_that_is_killed_leaves_the_table_as_it_was_or_complete(
    kind: str, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    choices = random.Random(7)
    with BrokerProcess(tmp_path / "broker", BUSY_CLEANER) as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, "orders", partitions=PARTITIONS, config=COMPACTED)
        with KeyedWriter(bootstrap, "orders", partitions=PARTITIONS, seed=2) as writer:
            wait_for(lambda: len(writer.records) > 100)
            before = exported(kind, broker.data_dir, tables)
            seconds = seconds_of(lambda: exported(kind, broker.data_dir, tables))
            for _ in range(KILLS):
                kill_within(
                    command(kind, broker.data_dir, tables), choices.uniform(0.3, 1) * seconds
                )
                assert rows_in(kind, tables)  # It can be read.
            writer.stop()
        after = offsets_of(exported(kind, broker.data_dir, tables))
    for partition, offset in offsets_of(before)["orders"].items():
        assert after["orders"][partition] >= offset
    expected = model(below(writer.records, after))
    assert rows_in(kind, tables) == {
        (partition, key): row for (_, partition, key), row in expected.items()
    }


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def seconds_of(work: Any) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def kill_within(arguments: list[str], seconds: float) -> None:
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
