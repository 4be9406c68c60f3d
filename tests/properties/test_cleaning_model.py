"""Any history of a compacted log leaves what a list in memory says it must.

The model keeps batches of (offset, key, value) and applies the rule of compaction in a few lines of
plain Python. After every step the log's records must equal the model's, from any start offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleaner.pacing.settings import CleanerSettings
from protocol.records.record_batch import Codec
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.log_builder import KeyValue
from tests.harness.sidecar_mode import SidecarMode
from tests.properties.cleaning_history import NarrowWindows

Entry = tuple[int, bytes, bytes | None]

RETENTION_MS = CONFIG.delete_retention_ms


@dataclass(frozen=True, slots=True)
class Append:
    """One batch, from a producer of its own if idempotent."""

    pairs: Sequence[KeyValue]
    codec: Codec = Codec.NONE
    is_idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Roll:
    """A new active segment."""


@dataclass(frozen=True, slots=True)
class Clean:
    """A whole pass, after so much time."""

    after_ms: int = 0


@dataclass(frozen=True, slots=True)
class Reopen:
    """A stop and a start."""

    is_clean: bool = True


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop the youngest batches."""

    batches_count: int = 1


Step = Append | Roll | Clean | Reopen | Truncate

KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"a longer key of some bytes"])
VALUES = st.none() | st.sampled_from([b"", b"1", b"2", b"v" * 300])
STEPS = st.one_of(
    st.builds(
        Append,
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
        st.sampled_from(Codec),
        st.booleans(),
    ),
    st.builds(
        Append,
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
    ),
    st.just(Roll()),
    st.builds(Clean, st.sampled_from([0, 1, RETENTION_MS - 1, RETENTION_MS])),
    st.builds(Reopen, st.booleans()),
    st.builds(Truncate, st.integers(1, 3)),
)


@dataclass(slots=True)
class Batch:
    """A batch's place, what is left of it, and its delete horizon."""

    base_offset: int
    last_offset: int
    entries: list[Entry]
    horizon_ms: int | None = None


@dataclass(slots=True)
class Model:
    """What a compacted log holds, the short way."""

    batches: list[Batch] = field(default_factory=list)
    end_offset: int = 0

    def entries(self, start_offset: int = 0) -> list[Entry]:
        return [
            entry for batch in self.batches for entry in batch.entries if entry[0] >= start_offset
        ]

    def append(self, pairs: Sequence[KeyValue]) -> None:
        entries = [
            (self.end_offset + number, key or b"", value)
            for number, (key, value) in enumerate(pairs)
        ]
        last_offset = self.end_offset + len(pairs) - 1
        self.batches.append(Batch(self.end_offset, last_offset, entries))
        self.end_offset = last_offset + 1

    def truncate(self, batches_count: int) -> int:
        """Drop the last batches, and those before without records; the offset that is the end."""
        kept = max(len(self.batches) - batches_count, 0)
        while kept and not self.batches[kept - 1].entries:
            kept -= 1
        dropped = self.batches[kept:]
        del self.batches[kept:]
        if dropped:
            self.end_offset = dropped[0].base_offset
        return self.end_offset

    def clean(self, now_ms: int) -> None:
        latest = {key: offset for offset, key, _value in self.entries()}
        for batch in self.batches:
            is_due = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            kept = [
                (offset, key, value)
                for offset, key, value in batch.entries
                if latest[key] == offset and not (value is None and is_due)
            ]
            if batch.last_offset == self.end_offset - 1 and kept[-1:] != batch.entries[-1:]:
                # The batch before the pass's upper bound keeps its last record.
                kept = kept + batch.entries[-1:]
            if batch.horizon_ms is None and any(value is None for _, _, value in kept):
                batch.horizon_ms = now_ms + RETENTION_MS
            batch.entries = kept


class History:
    """The log and the model, side by side."""

    def __init__(self, segment_bytes: int, sidecars: SidecarMode, cleaner: CleanerSettings) -> None:
        config = replace(CONFIG, segment_bytes=segment_bytes)
        self.log = CompactedLog(config, cleaner, sidecars=sidecars)
        self.model = Model()
        self.producers = 0

    def take(self, step: Step) -> None:
        match step:
            case Append():
                self._append(step)
            case Roll():
                self.log.roll()
            case Clean(after_ms=after_ms):
                self.log.now_ms += after_ms
                self.log.clean()
                self.model.clean(self.log.now_ms)
                assert self.log.log.clean_offset == self.model.end_offset
            case Reopen(is_clean=is_clean):
                self.log.reopen(is_clean=is_clean)
            case Truncate(batches_count=count):
                self.log.log.truncate_to(Offset(self.model.truncate(count)))

    def _append(self, step: Append) -> None:
        self.producers += step.is_idempotent
        self.log.append(
            *step.pairs,
            codec=step.codec,
            producer_id=self.producers if step.is_idempotent else -1,
            producer_epoch=0 if step.is_idempotent else -1,
            base_sequence=0 if step.is_idempotent else -1,
        )
        self.model.append(step.pairs)

    def check(self) -> None:
        expected = self.model.entries()
        assert self.log.pairs() == expected
        assert self.log.log.log_start_offset == 0
        assert self.log.log.log_end_offset == self.model.end_offset

    def check_every_start_offset(self) -> None:
        for offset in range(self.model.end_offset + 1):
            seen = [(each.offset, each.key, each.value) for each in self.log.records(offset)]
            assert seen == self.model.entries(offset)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    segment_bytes=st.sampled_from([1, 300, 1 << 30]),
    sidecars=st.sampled_from(SidecarMode),
    cleaner=st.sampled_from([SETTINGS, NarrowWindows(dedupe_buffer_size=24 * 16)]),
)
@example(
    steps=[Append([(b"a", None)]), Clean(), Clean(RETENTION_MS)],
    segment_bytes=1,
    sidecars=SidecarMode.KEPT,
    cleaner=SETTINGS,
)
@example(
    steps=[Append([(b"a", b"1")]), Append([(b"a", None)]), Clean(), Reopen(is_clean=False),
           Append([(b"b", b"1")]), Clean(RETENTION_MS), Clean(RETENTION_MS)],
    segment_bytes=1 << 30,
    sidecars=SidecarMode.KEPT,
    cleaner=SETTINGS,
)  # fmt: skip
def test_any_history_leaves_what_the_rule_says(
    steps: list[Step], segment_bytes: int, sidecars: SidecarMode, cleaner: CleanerSettings
) -> None:
    history = History(segment_bytes, sidecars, cleaner)

    for step in steps:
        history.take(step)
        history.check()

    history.take(Clean(2 * RETENTION_MS))
    history.check()
    history.check_every_start_offset()


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), min_size=1, max_size=30
    ),
    segment_bytes=st.sampled_from([1, 300, 1 << 30]),
    map_slots=st.sampled_from([16, 20, 1000]),
    sidecars=st.sampled_from(SidecarMode),
)
def test_without_traffic_cleaning_comes_to_an_end_with_one_record_a_key(
    batches: list[list[KeyValue]], segment_bytes: int, map_slots: int, sidecars: SidecarMode
) -> None:
    log = CompactedLog(
        replace(CONFIG, segment_bytes=segment_bytes),
        replace(SETTINGS, dedupe_buffer_size=24 * map_slots),
        sidecars=sidecars,
    )
    for number, pairs in enumerate(batches):
        log.append(*pairs)
        if number % 3 == 2:
            log.roll()
    log.roll()
    latest = {key: value for pairs in batches for key, value in pairs}

    log.clean_until_idle(passes_max=len(batches) + 1)
    log.now_ms += RETENTION_MS
    log.clean_until_idle(passes_max=2)
    log.now_ms += 100 * RETENTION_MS
    assert log.clean_until_idle() == 0

    *body, (tail_offset, tail_key, tail_value) = log.pairs()
    assert tail_offset == log.log.high_watermark - 1
    assert tail_value == batches[-1][-1][1] == latest[tail_key]
    live = {key: value for _, key, value in body}
    assert len(live) == len(body)
    expected = {key: value for key, value in latest.items() if value is not None}
    expected.pop(tail_key, None)
    assert live == expected
