"""Spark's own Kafka source reads a compacted topic, whole and in steps, over restarts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from pipeline.jars import CONNECTOR, JarsUnavailable, jars
from tests.harness.clients import ConfluentClient, create_topic

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _connector() -> None:
    try:
        jars(CONNECTOR)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


def run_job(bootstrap: str, topic: str, output: Path, *arguments: str) -> dict[bytes, bytes]:
    """As a user runs it; the table's keys and values."""
    command = [sys.executable, "-m", "pipeline.latest_by_key", "--bootstrap-servers", bootstrap]
    options = ["--topic", topic, "--output", str(output), *arguments]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    table = pd.read_parquet(output / "current")
    return dict(zip(table["key"], table["value"], strict=True))


def test_batch_and_stream_write_the_same_table_and_the_stream_goes_on_where_it_was(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("spark")
    create_topic(bootstrap, topic, partitions=2, config={"cleanup.policy": "compact"})
    first = [(b"key-%d" % (n % 40), b"value-%d" % n) for n in range(1000)]
    ConfluentClient().produce(bootstrap, {topic: "zstd"}, first)

    stepwise = run_job(
        bootstrap, topic, tmp_path / "s", "--mode", "stream", "--offsets-per-batch", "300"
    )
    assert stepwise == dict(first)

    second = [(b"key-3", None), (b"key-4", b"newer"), (b"key-99", b"new")]
    ConfluentClient().produce(bootstrap, {topic: "lz4"}, second)
    expected = {key: value for key, value in dict([*first, *second]).items() if value is not None}

    assert run_job(bootstrap, topic, tmp_path / "s", "--mode", "stream") == expected
    assert run_job(bootstrap, topic, tmp_path / "b", "--mode", "batch") == expected
