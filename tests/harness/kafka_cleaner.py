"""Apache Kafka's own log and log cleaner, in a JVM without a broker.

`tests/conformance/java/KafkaCleaner.java` is the other end of the pipe and documents the verbs.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from tests.harness.java_program import SOURCES, JavaProgram

PINS = SOURCES / "kafka-cleaner-4.3"
MAP_SLOT_BYTES = 24
"""Bytes per slot of Kafka's SkimpyOffsetMap: an MD5 and an offset."""


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record as Kafka's reader shows it, with key, value and headers in its notation."""

    offset: int
    timestamp: int
    key: str
    """"=" and hexadecimal digits; "-" is null. The value has the same format."""
    value: str
    headers: str

    @property
    def is_tombstone(self) -> bool:
        return self.key != "-" and self.value == "-"


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One batch as Kafka's reader shows it, after its CRC check."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    codec: str
    timestamp_type: str
    max_timestamp: int
    delete_horizon_ms: int
    """-1 for none."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    record_count: int
    records: tuple[DumpedRecord, ...]


@dataclass(frozen=True, slots=True)
class KafkaPass:
    """The offsets that one of Kafka's cleaning passes covered."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int


class KafkaCleaner(JavaProgram):
    """One log at a time, in one JVM."""

    def __init__(self) -> None:
        super().__init__("KafkaCleaner", PINS)
        self._logs = 0

    def new(self, properties: Mapping[str, str], *, map_keys: int, now_ms: int) -> None:
        """Start with an empty log and an offset map of `map_keys` slots; delete the previous log."""
        directory = self._folder / str(self._logs)
        self._logs += 1
        pairs = " ".join(f"{name}={value}" for name, value in properties.items())
        self._ask(f"new {directory} {map_keys * MAP_SLOT_BYTES} {now_ms} {pairs}")

    def append(self, batch: bytes) -> None:
        self._ask(f"append {base64.b64encode(batch).decode()}")

    def roll(self) -> None:
        self._ask("roll")

    def set_clock(self, now_ms: int) -> None:
        self._ask(f"now {now_ms}")

    def expire_producers(self) -> None:
        self._ask("expire")

    def reopen(self) -> None:
        self._ask("reopen")

    def clean(self, passes_max: int) -> list[KafkaPass]:
        """Run passes until Kafka finds nothing to clean."""
        passes: list[KafkaPass] = []
        while len(passes) < passes_max and (answer := self._ask("clean")):
            passes.append(KafkaPass(*map(int, answer[0].split()[1:])))
        return passes

    def dump(self) -> list[DumpedBatch]:
        return parse_dump(self._ask("dump"))

    def read(self, batches: bytes) -> list[DumpedBatch]:
        """Returns what Kafka's reader finds in batches that it did not write."""
        path = self._folder / "batches"
        path.write_bytes(batches)
        return parse_dump(self._ask(f"read {path}"))

    def _ask(self, command: str) -> list[str]:
        lines: list[str] = []
        for line in self._answers(command):
            if line == ".\n":
                return lines
            lines.append(line[:-1])
        raise self._ended(f"'{command[:80]}'")


def parse_dump(lines: list[str]) -> list[DumpedBatch]:
    """Parse batches, each with the records listed below it."""
    batches: list[tuple[list[str], list[DumpedRecord]]] = []
    for line in lines:
        kind, *fields = line.split(" ")
        if kind == "batch":
            batches.append((fields, []))
        else:
            offset, timestamp, *rest = fields
            batches[-1][1].append(DumpedRecord(int(offset), int(timestamp), *rest))
    return [_batch(fields, tuple(records)) for fields, records in batches]


def _batch(fields: list[str], records: tuple[DumpedRecord, ...]) -> DumpedBatch:
    base, last, epoch, codec, timestamp_type, *numbers, transactional, control, count = fields
    youngest, horizon, producer, producer_epoch, base_sequence, last_sequence = map(int, numbers)
    return DumpedBatch(
        base_offset=int(base),
        last_offset=int(last),
        leader_epoch=int(epoch),
        codec=codec,
        timestamp_type=timestamp_type,
        max_timestamp=youngest,
        delete_horizon_ms=horizon,
        producer_id=producer,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        last_sequence=last_sequence,
        is_transactional=transactional == "true",
        is_control=control == "true",
        record_count=int(count),
        records=records,
    )
