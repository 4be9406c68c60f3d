"""The readers whose results are compared: four Kafka clients and Spark, each from the start."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tests.harness.client_record import ConsumedRecord
from tests.harness.clients import client

CLIENTS = ("kafka-python", "aiokafka", "confluent-kafka", "kcat")
SPARK_MODES = ("batch", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one reader."""

    reader: str
    records: int | None
    """Number of records that it received; None for Spark, whose job shows only its result."""
    last_values: dict[bytes, bytes]
    """Key -> last value; keys whose last record is a tombstone are absent."""
    seconds: float


def read_with_client(name: str, bootstrap: str, topic: str) -> Reading:
    """Read to the end with a Kafka client."""
    started = time.monotonic()
    records = list(client(name).consume(bootstrap, [topic]))
    return Reading(
        reader=name,
        records=len(records),
        last_values=last_values(records),
        seconds=time.monotonic() - started,
    )


def last_values(records: Iterable[ConsumedRecord]) -> dict[bytes, bytes]:
    """Returns the last values. A key's records are all in one partition and arrive in offset order."""
    found: dict[bytes, bytes] = {}
    for _, _, _, key, value in records:
        assert key is not None
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def read_with_spark(mode: str, bootstrap: str, topic: str, folder: Path) -> Reading:
    """Run the pipeline's job as a user does, and read the table that it wrote.

    Raises:
        RuntimeError: the job failed; the message is the job's.
    """
    started = time.monotonic()
    output = folder / f"spark-{mode}"
    command = [sys.executable, "-m", "cli", "pipeline", "table", mode, "-b", bootstrap]
    options = ["--topic", topic, "--table", str(output), "--format", "parquet"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Spark ({mode}): {done.stderr.strip()[-2000:]}")
    table = pd.read_parquet(output / "current", columns=["key", "value"])
    return Reading(
        reader=f"Spark {mode}",
        records=None,
        last_values=dict(zip(table["key"], table["value"], strict=True)),
        seconds=time.monotonic() - started,
    )


def differences(found: dict[bytes, bytes], expected: dict[bytes, bytes]) -> dict[str, int]:
    """Returns the numbers of keys that are missing, unexpected, or have an unexpected value."""
    return {
        "missing": len(expected.keys() - found.keys()),
        "unexpected": len(found.keys() - expected.keys()),
        "other value": sum(found[key] != expected[key] for key in found.keys() & expected.keys()),
    }
