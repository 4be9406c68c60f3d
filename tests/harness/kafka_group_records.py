"""Reads records of `__consumer_offsets` with Apache Kafka's code, in a JVM without a broker."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.spark.jars import jars
from tests.harness.java_program import SOURCES, compiled, java_command

PINS = SOURCES / "kafka-groups-4.3"
SECONDS_MAX = 120


@dataclass(frozen=True, slots=True)
class KafkaGroupRecord:
    """A record that Kafka has read and written again."""

    key: bytes
    value: bytes
    key_says: dict[str, Any]
    """With the field names of Kafka's schemas."""
    value_says: dict[str, Any]


def read_by_kafka(records: Sequence[tuple[bytes, bytes]]) -> list[KafkaGroupRecord]:
    """Let Kafka read keys and values.

    Raises JarsUnavailable, with a message that says what to install, if it is unavailable.
    """
    found = jars(PINS)
    command = java_command("GroupRecords", [compiled("GroupRecords", found), *found])
    lines = (" ".join(base64.b64encode(each).decode() for each in record) for record in records)
    done = subprocess.run(
        command,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = done.stdout.splitlines()
    return [_record(*answers[at : at + 3]) for at in range(0, len(answers), 3)]


def _record(written: str, key_says: str, value_says: str) -> KafkaGroupRecord:
    key, value = (base64.b64decode(part) for part in written.split(" "))
    return KafkaGroupRecord(key, value, json.loads(key_says), json.loads(value_says))
