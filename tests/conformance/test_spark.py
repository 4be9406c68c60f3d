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


def run_job(
    mode: str, bootstrap: str, topic: str, table: Path, *arguments: str
) -> dict[bytes, bytes]:
    """As a user runs it; the table's keys and values."""
    command = [sys.executable, "-m", "server", "pipeline", "table", mode, "-b", bootstrap]
    options = ["--topic", topic, "--table", str(table), "--format", "parquet", *arguments]
    done = subprocess.run(
        [*command, *options, "--master", "local[2]"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = pd.read_parquet(table / "current")
    return dict(zip(rows["key"], rows["value"], strict=True))


def test_batch_and_stream_write_the_same_table_and_the_stream_goes_on_where_it_was(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("spark")
    create_topic(bootstrap, topic, partitions=2, config={"cleanup.policy": "compact"})
    first = [(b"key-%d" % (n % 40), b"value-%d" % n) for n in range(1000)]
    ConfluentClient().produce(bootstrap, {topic: "zstd"}, first)

    stepwise = run_job("stream", bootstrap, topic, tmp_path / "s", "--offsets-per-batch", "300")
    assert stepwise == dict(first)

    second = [(b"key-3", None), (b"key-4", b"newer"), (b"key-99", b"new")]
    ConfluentClient().produce(bootstrap, {topic: "lz4"}, second)
    expected = {key: value for key, value in dict([*first, *second]).items() if value is not None}

    assert run_job("stream", bootstrap, topic, tmp_path / "s") == expected
    assert run_job("batch", bootstrap, topic, tmp_path / "b") == expected
