"""What two cleaners left of one log, and what explains where it differs. Pure.

Both logs were given the same batches, so a batch is known by its base offset and a record by its
offset. Compared are every record (offset, timestamp, key, value, headers) and every header field that
Kafka's reader knows, save how the bytes are compressed and what the records' times count from.
Each `Reason` is a row of "Differences from Apache Kafka" in tests/cleaner/README.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from tests.harness.kafka_cleaner import DumpedBatch, DumpedRecord

OF_THE_RECORDS = ("records", "record_count", "max_timestamp")
"""Fields that say what the records are; where these differ, they do."""
OF_NO_RECORDS = ("codec", "delete_horizon_ms")
"""Fields that an empty batch loses."""
FIELDS = tuple(field.name for field in fields(DumpedBatch))


class Reason(enum.Enum):
    """Why the logs may differ; what has no reason is a bug."""

    KAFKA_WAITS = "kafka waits for new data"
    """A horizon has passed, or a producer went on: our timer has cleaned, Kafka's waits for dirt."""
    TAIL_RECORD = "we keep the record before the upper bound"
    """Without it a client that reads to the end would wait for ever."""
    CUT_PASS = "the horizon of a batch whose tombstones are gone"
    """A small map cuts a pass up, Kafka's in other places; a tombstone that lived from one cut to
    the next has left its horizon behind, which means nothing any more."""

    @property
    def may_last(self) -> bool:
        """Whether it may still be there when nothing is under way any more."""
        return self is Reason.CUT_PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When the logs are compared."""

    now_ms: int
    tail_offset: int
    """The last offset below the upper bound of our last pass."""
    kafka_was_idle: bool
    """Whether Kafka's cleaner has found nothing to do since the last comparison."""
    passes_were_cut: bool
    """Whether a map has been too small for a pass, so that it took several."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One record, batch or header field that is not the same."""

    what: str
    reason: Reason | None


def differences(
    kafka: Sequence[DumpedBatch], ours: Sequence[DumpedBatch], moment: Moment
) -> Iterator[Difference]:
    """Every difference, in the order of offsets."""
    theirs = {batch.base_offset: batch for batch in kafka}
    mine = {batch.base_offset: batch for batch in ours}
    for base_offset in sorted(theirs.keys() | mine.keys()):
        their, my = theirs.get(base_offset), mine.get(base_offset)
        if their is None or my is None:
            yield from _of_one_side(their, my, moment)
        elif their != my:
            yield from _of_records(their, my, moment)
            yield from _of_headers(their, my, moment)


def _of_one_side(
    their: DumpedBatch | None, my: DumpedBatch | None, moment: Moment
) -> Iterator[Difference]:
    """Of a batch that only one side has, its records or, if it has none, itself."""
    batch = their or my
    assert batch is not None
    if batch.records:
        yield from _of_records(their, my, moment)
    elif their is not None and moment.kafka_was_idle:
        yield Difference(f"only Kafka has the empty batch {batch}", Reason.KAFKA_WAITS)
    else:
        yield Difference(
            f"only {'Kafka has' if their else 'we have'} the empty batch {batch}", None
        )


def _of_records(
    their: DumpedBatch | None, my: DumpedBatch | None, moment: Moment
) -> Iterator[Difference]:
    theirs = {record.offset: record for record in their.records} if their else {}
    mine = {record.offset: record for record in my.records} if my else {}
    for offset in sorted(theirs.keys() | mine.keys()):
        a, b = theirs.get(offset), mine.get(offset)
        if a is not None and b is None:
            assert their is not None
            yield Difference(f"only Kafka has {a} of {their}", _why_only_kafka(a, their, moment))
        elif a is None and b is not None:
            reason = Reason.TAIL_RECORD if offset == moment.tail_offset else None
            yield Difference(f"only we have {b} of {my}", reason)
        elif a != b:
            yield Difference(f"Kafka has {a}, we have {b}", None)


def _why_only_kafka(record: DumpedRecord, batch: DumpedBatch, moment: Moment) -> Reason | None:
    is_due = record.is_tombstone and 0 <= batch.delete_horizon_ms <= moment.now_ms
    return Reason.KAFKA_WAITS if is_due and moment.kafka_was_idle else None


def _of_headers(their: DumpedBatch, my: DumpedBatch, moment: Moment) -> Iterator[Difference]:
    skipped: tuple[str, ...] = ()
    if their.records != my.records:
        skipped += OF_THE_RECORDS
    if bool(their.records) != bool(my.records):
        skipped += OF_NO_RECORDS
    for name in FIELDS:
        a, b = getattr(their, name), getattr(my, name)
        if a != b and name not in skipped:
            text = f"{name}: Kafka has {a}, we have {b} in batch {their.base_offset}"
            is_cut = name == "delete_horizon_ms" and moment.passes_were_cut
            has_tombstones = any(record.is_tombstone for record in (*their.records, *my.records))
            yield Difference(text, Reason.CUT_PASS if is_cut and not has_tombstones else None)
