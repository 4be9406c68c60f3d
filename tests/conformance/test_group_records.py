"""Records of `__consumer_offsets`: Kafka reads what we write, understands it, and writes the same."""

from __future__ import annotations

import base64
import dataclasses
import random
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.spark.jars import JarsUnavailable
from protocol.internal_topics.coordinator_records import PREFIX, write_key
from protocol.internal_topics.group_records import GroupValue, read_record, record_classes
from protocol.wire.encode import encode
from tests.harness.kafka_group_records import KafkaGroupRecord, read_by_kafka
from tests.harness.messages import MessageGenerator

SAMPLES = 20
ALL_TYPES = (*range(1, 9), 16)
"""That are written: 0 is that of offsets before 1."""


def drawn() -> Iterator[tuple[bytes, bytes, Any, GroupValue]]:
    """Random keys and values of every type and version, with and without tagged fields."""
    source = random.Random(5)
    for record_type in ALL_TYPES:
        key_class, value_class = record_classes(record_type)
        for version in range(value_class.versions[0], value_class.versions[1] + 1):
            for number in range(SAMPLES):
                tagged = bool(number % 2)
                key = MessageGenerator(source, version=0, tagged=tagged).message(key_class)
                value = MessageGenerator(source, version=version, tagged=tagged).message(
                    value_class
                )
                body = b"".join(encode(value, version))  # type: ignore[arg-type]
                yield write_key(key), PREFIX.pack(version) + body, key, value


@pytest.fixture(scope="module")
def by_kafka() -> list[KafkaGroupRecord]:
    try:
        return read_by_kafka([(key, value) for key, value, _, _ in drawn()])
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


def test_kafka_reads_our_records_and_writes_the_same_bytes(
    by_kafka: list[KafkaGroupRecord],
) -> None:
    assert [(each.key, each.value) for each in by_kafka] == [
        (key, value) for key, value, _, _ in drawn()
    ]


def test_kafka_understands_them_as_we_do(by_kafka: list[KafkaGroupRecord]) -> None:
    for (key_bytes, value_bytes, key, value), theirs in zip(drawn(), by_kafka, strict=True):
        assert says(key, theirs.key_says), (key, theirs.key_says)
        assert says(value, theirs.value_says), (value, theirs.value_says)
        ours = read_record(key_bytes, value_bytes)
        assert (ours.key, ours.value) == (key, value)


def says(ours: Any, theirs: Any) -> bool:
    """Whether Kafka's JSON says what a message of ours does; it leaves out what a version has not."""
    if dataclasses.is_dataclass(ours):
        fields = {camel_case(f.name): getattr(ours, f.name) for f in dataclasses.fields(ours)}
        return theirs.keys() <= fields.keys() and all(
            says(fields[name], told) for name, told in theirs.items() if name in fields
        )
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(map(says, ours, theirs))
    if isinstance(ours, memoryview):
        return base64.b64decode(theirs) == bytes(ours)
    if isinstance(ours, uuid.UUID):
        return base64.urlsafe_b64decode(theirs + "==") == ours.bytes
    return bool(ours == theirs)


def camel_case(name: str) -> str:
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)
