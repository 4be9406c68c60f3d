"""What two cleaners left of one log, and what explains where it differs. Pure.

Both logs were given the same batches, so a batch is known by its base offset and a record by its
offset. Compared are every record (offset, timestamp, key, value, headers) and every header field that
Kafka's reader knows, save how the bytes are compressed and what the records' times count from.
Each `Reason` is a row of "Differences from Apache Kafka" in tests/cleaner/README.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from tests.harness.kafka_cleaner import DumpedBatch, DumpedRecord

OF_THE_RECORDS = ("records", "record_count", "max_timestamp")
"""Fields that say what the records are; where these differ, they do."""
OF_NO_RECORDS = ("codec", "delete_horizon_ms")
"""Fields that an empty batch loses."""
NEVER = 2**63 - 1
FIELDS = tuple(field.name for field in fields(DumpedBatch))


class Reason(enum.Enum):
    """Why the logs may differ; what has no reason is a bug."""

    KAFKA_WAITS = "kafka waits for new data"
    """A horizon has passed, or a producer went on: our timer has cleaned, Kafka's waits for dirt."""
    TAIL_RECORD = "we keep the record before the upper bound"
    """Without it a client that reads to the end would wait for ever."""
    MARKER_CLOCK = "our clock of a transaction's marker starts a pass earlier"
    """In the pass that leaves nothing of the transaction; Kafka's starts in the next one."""
    KAFKA_UNMAPPED = "kafka has not mapped a transaction behind an aborted one"
    """A fault of Kafka's: where a cut pass begins inside a segment, its map takes the producer's
    aborted transactions of the whole segment into account, but not the markers before the cut, so
    that a committed transaction counts as aborted: what it supersedes stays for ever."""
    CUT_PASS = "the horizon of a batch whose tombstones are gone"
    """A small map cuts Kafka's pass up, and never ours; a tombstone that lived from one cut to the
    next has left its horizon, which no longer has an effect."""

    @property
    def may_last(self) -> bool:
        """Whether it may remain when all transactions are decided and all horizons have passed."""
        return self in (Reason.KAFKA_UNMAPPED, Reason.CUT_PASS)


class Stale:
    """What Kafka's log has held although its own log superseded it, by a transaction's record."""

    def __init__(self) -> None:
        self._offsets: set[int] = set()
        self._producers: set[int] = set()

    def look(self, kafka: Sequence[DumpedBatch]) -> None:
        """Learn from Kafka's log after a pass. It is for ever, even if what supersedes it goes."""
        latest: dict[str, int] = {}
        batches = [batch for batch in kafka if not batch.is_control]
        for batch in batches:
            if batch.is_transactional:
                latest |= {each.key: each.offset for each in batch.records if each.key != "-"}
        for batch in batches:
            found = {
                each.offset for each in batch.records if each.offset < latest.get(each.key, -1)
            }
            self._offsets |= found
            self._producers |= {batch.producer_id} if found else set()

    def explains(self, batch: DumpedBatch, offset: int) -> bool:
        """The record itself, or a marker of a producer that has such records."""
        is_marker_of_stale = batch.is_control and batch.producer_id in self._producers
        return offset in self._offsets or is_marker_of_stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When the logs are compared."""

    now_ms: int
    tail_offset: int
    """The last offset below the upper bound of our last pass."""
    kafka_was_idle: bool
    """Whether Kafka's cleaner has found nothing to do since the last comparison."""
    marker_horizons: Mapping[int, int]
    """What our markers' horizons were at the earlier comparisons, by base offset."""
    stale: Stale
    passes_were_cut: bool
    """Whether a map has been too small for a pass, so that it took several."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One record, batch or header field that is not the same."""

    what: str
    reason: Reason | None


def values_of(log: Sequence[DumpedBatch]) -> dict[str, str]:
    """What a reader ends with who reads the committed records from the log's start: key to value."""
    values: dict[str, str] = {}
    for record in (each for batch in log if not batch.is_control for each in batch.records):
        values[record.key] = record.value
    return {key: value for key, value in values.items() if value != "-"}


def differences(
    kafka: Sequence[DumpedBatch], ours: Sequence[DumpedBatch], moment: Moment
) -> Iterator[Difference]:
    """Every difference, in the order of offsets."""
    comparison = _Comparison(moment)
    theirs = {batch.base_offset: batch for batch in kafka}
    mine = {batch.base_offset: batch for batch in ours}
    for base_offset in sorted(theirs.keys() | mine.keys()):
        their, my = theirs.get(base_offset), mine.get(base_offset)
        if their is None or my is None:
            yield from comparison.of_one_side(their, my)
        elif their != my:
            yield from comparison.of_records(their, my)
            yield from comparison.of_headers(their, my)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Of two batches of one base offset, or of one that the other side has not."""

    moment: Moment

    def of_one_side(
        self, their: DumpedBatch | None, my: DumpedBatch | None
    ) -> Iterator[Difference]:
        """Of a batch that only one side has, its records or, if it has none, itself."""
        batch = their or my
        assert batch is not None
        if batch.records:
            yield from self.of_records(their, my)
        elif their is not None:
            reason = Reason.KAFKA_WAITS if self.moment.kafka_was_idle else None
            yield Difference(f"only Kafka has the empty batch {batch}", reason)
        else:
            yield Difference(f"only we have the empty batch {batch}", None)

    def of_records(self, their: DumpedBatch | None, my: DumpedBatch | None) -> Iterator[Difference]:
        theirs = {record.offset: record for record in their.records} if their else {}
        mine = {record.offset: record for record in my.records} if my else {}
        for offset in sorted(theirs.keys() | mine.keys()):
            a, b = theirs.get(offset), mine.get(offset)
            if a is not None and b is None:
                assert their is not None
                yield Difference(f"only Kafka has {a} of {their}", self._why_only_kafka(a, their))
            elif a is None and b is not None:
                assert my is not None
                yield Difference(f"only we have {b} of {my}", self._why_only_ours(b, my))
            elif a != b:
                yield Difference(f"Kafka has {a}, we have {b}", None)

    def _why_only_ours(self, record: DumpedRecord, batch: DumpedBatch) -> Reason | None:
        # The batch may end in offsets that no record has.
        is_tail = batch.last_offset == self.moment.tail_offset and record == batch.records[-1]
        return Reason.TAIL_RECORD if is_tail else None

    def _why_only_kafka(self, record: DumpedRecord, batch: DumpedBatch) -> Reason | None:
        now_ms = self.moment.now_ms
        if self.moment.stale.explains(batch, record.offset):
            return Reason.KAFKA_UNMAPPED
        if batch.is_control and self.moment.marker_horizons.get(record.offset, NEVER) <= now_ms:
            return Reason.MARKER_CLOCK
        is_due = record.is_tombstone and 0 <= batch.delete_horizon_ms <= now_ms
        return Reason.KAFKA_WAITS if is_due and self.moment.kafka_was_idle else None

    def of_headers(self, their: DumpedBatch, my: DumpedBatch) -> Iterator[Difference]:
        skipped: tuple[str, ...] = ()
        if their.records != my.records:
            skipped += OF_THE_RECORDS
        if bool(their.records) != bool(my.records):
            skipped += OF_NO_RECORDS
        for name in FIELDS:
            a, b = getattr(their, name), getattr(my, name)
            if a != b and name not in skipped:
                text = f"{name}: Kafka has {a}, we have {b} in batch {their.base_offset}"
                is_horizon = name == "delete_horizon_ms"
                yield Difference(text, self._why_horizon(their, my) if is_horizon else None)

    def _why_horizon(self, their: DumpedBatch, my: DumpedBatch) -> Reason | None:
        if their.is_control:
            is_earlier = 0 <= my.delete_horizon_ms < their.delete_horizon_ms % NEVER
            return Reason.MARKER_CLOCK if is_earlier else None
        in_both = set(their.records) & set(my.records)
        has_tombstones = any(record.is_tombstone for record in in_both)
        return Reason.CUT_PASS if self.moment.passes_were_cut and not has_tombstones else None
