"""Cleaning loses nothing committed and leaves nothing aborted, also if passes are interrupted."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CleanerSettings
from protocol.records.compression import Codec
from protocol.wire.numbers import Offset
from storage.counts.log_counts import count_records, first_live_offset
from storage.counts.segment_counts import ReadBudget
from storage.formats.config_property import LONG_MAX
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.log_builder import KeyValue
from tests.harness.log_transactions import committed_offsets
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.transactional_producer import TransactionalProducer
from tests.properties.cleaning_history import NarrowWindows

PRODUCERS = (1, 2, 3)
SMALL_MAP = CleanerSettings(dedupe_buffer_size=24 * 16)


@dataclass(frozen=True, slots=True)
class Append:
    """A batch outside of any transaction."""

    pairs: Sequence[KeyValue]


@dataclass(frozen=True, slots=True)
class Send:
    """A batch of a producer's transaction."""

    producer: int
    pairs: Sequence[KeyValue]
    codec: Codec


@dataclass(frozen=True, slots=True)
class End:
    """The end of a producer's transaction: commit, abort, or abort with a raised epoch."""

    producer: int
    how: str


@dataclass(frozen=True, slots=True)
class Clean:
    """Passes until nothing is due, after so much time; or one pass that stops after some swaps."""

    after_ms: int
    swaps: int | None = None


@dataclass(frozen=True, slots=True)
class Reopen:
    """A stop and a start."""

    is_clean: bool


PAIRS = st.lists(
    st.tuples(st.sampled_from((b"a", b"b", b"c", b"d")), st.none() | st.sampled_from((b"", b"v"))),
    min_size=1,
    max_size=3,
)
STEPS = st.one_of(
    st.builds(Append, PAIRS),
    st.builds(Send, st.sampled_from(PRODUCERS), PAIRS, st.sampled_from(Codec)),
    st.builds(Send, st.sampled_from(PRODUCERS), PAIRS, st.just(Codec.NONE)),
    st.builds(
        End, st.sampled_from(PRODUCERS), st.sampled_from(("commit", "commit", "abort", "fence"))
    ),
    st.just("roll"),
    st.builds(Send, st.sampled_from(PRODUCERS), PAIRS, st.just(Codec.NONE)),
    st.builds(
        Clean, st.sampled_from((0, CONFIG.delete_retention_ms)), st.sampled_from((None, 1, 2))
    ),
    st.builds(Reopen, st.booleans()),
)


@dataclass(slots=True)
class Sent:
    """A record that was appended, and the outcome of its transaction."""

    offset: int
    key: bytes
    value: bytes | None
    marker_offset: int | None = None
    is_committed: bool = False
    is_undecided: bool = False


@dataclass(slots=True)
class History:
    """A log beside the list of everything that was ever appended to it."""

    log: CompactedLog
    sent: list[Sent] = field(default_factory=list)
    open: dict[int, list[Sent]] = field(default_factory=dict)
    producers: dict[int, TransactionalProducer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producers = {number: TransactionalProducer(self.log, number) for number in PRODUCERS}

    def do(self, step: object) -> None:
        match step:
            case Append(pairs):
                self._note(self.log.append(*pairs).base_offset, pairs, is_committed=True)
            case Send(producer, pairs, codec):
                base_offset = self.producers[producer].send(*pairs, codec=codec)
                noted = self._note(base_offset, pairs, is_undecided=True)
                self.open.setdefault(producer, []).extend(noted)
            case End(producer, how):
                self._end(producer, how)
            case Clean(after_ms, swaps):
                self.log.now_ms += after_ms
                self.log.roll()
                self._clean() if swaps is None else self._interrupt_after(swaps)
            case Reopen(is_clean):
                self.log.reopen(is_clean=is_clean)
            case _:
                self.log.roll()

    def _note(
        self,
        base_offset: int,
        pairs: Sequence[KeyValue],
        *,
        is_committed: bool = False,
        is_undecided: bool = False,
    ) -> list[Sent]:
        noted = [
            Sent(base_offset + number, key or b"", value, None, is_committed, is_undecided)
            for number, (key, value) in enumerate(pairs)
        ]
        self.sent += noted
        return noted

    def _end(self, producer: int, how: str) -> None:
        ends = {
            "commit": self.producers[producer].commit,
            "abort": self.producers[producer].abort,
            "fence": self.producers[producer].fence,
        }
        offset = ends[how]()
        for each in self.open.pop(producer, ()):
            each.marker_offset = offset
            each.is_committed = how == "commit"
            each.is_undecided = False

    def _interrupt_after(self, swaps: int) -> None:
        """Run one pass, and stop it at its first look after so many swaps."""
        seen = set[tuple[int, ...]]()

        def has_swapped(_seconds: float) -> bool:
            seen.add(tuple(each.file_version for each in self.log.log.segments))
            return len(seen) > swaps

        with suppress(CleaningAborted):
            self.log.execute(self.log.plan(), stop=has_swapped)

    def _clean(self) -> None:
        clean_offset = -1
        while self.log.log.clean_offset != clean_offset:
            clean_offset = self.log.log.clean_offset
            self.log.execute(self.log.plan())

    def check(self) -> None:
        left = {record.offset: (record.key, record.value) for record in self.log.records()}
        clean_offset = self.log.log.clean_offset
        newest = {each.key: each for each in self.sent if each.is_committed}
        for each in newest.values():
            assert each.value is None or left.get(each.offset) == (each.key, each.value)
        for each in self.sent:
            is_left = each.offset in left
            if is_left:
                assert left[each.offset] == (each.key, each.value)
                assert each.marker_offset is None or each.marker_offset in left
            if each.is_undecided:
                assert is_left
                assert each.offset >= clean_offset
            elif not each.is_committed and each.offset < clean_offset:
                assert not is_left
        self._check_reader(left)

    def _check_reader(self, left: Container[int]) -> None:
        """A reader of committed records is sent those that are left, up to the first undecided one."""
        undecided = (each.offset for each in self.sent if each.is_undecided)
        end_offset = min(undecided, default=self.log.log.log_end_offset)
        assert self.log.log.last_stable_offset == end_offset
        expected = [
            each.offset
            for each in self.sent
            if each.is_committed and each.offset in left and each.offset < end_offset
        ]
        for max_bytes in (2000, 1 << 20):
            assert committed_offsets(self.log.log, max_bytes=max_bytes) == expected


@settings(max_examples=300, deadline=None)
@given(
    st.lists(STEPS, min_size=12, max_size=50),
    st.sampled_from((SETTINGS, SMALL_MAP)),
    st.sampled_from((300, 1 << 20)),
    st.sampled_from(SidecarMode),
)
def test_nothing_committed_is_lost_and_nothing_aborted_survives(
    steps: list[object], cleaner: CleanerSettings, segment_bytes: int, sidecars: SidecarMode
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    history = History(CompactedLog(config, cleaner, sidecars=sidecars))

    for step in steps:
        history.do(step)
        history.check()


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, min_size=12, max_size=50), st.sampled_from((300, 1 << 20)))
def test_counts_from_any_offset_are_of_the_records_that_passes_have_left(
    steps: list[object], segment_bytes: int
) -> None:
    """`tests/properties/test_live_records.py` has the other operations, and cleans by hand."""
    history = History(CompactedLog(replace(CONFIG, segment_bytes=segment_bytes), SETTINGS))

    for step in steps:
        history.do(step)
        read = {record.offset for record in history.log.records()}
        left = sorted(read & {each.offset for each in history.sent})
        view = history.log.log.records_view()
        assert view is not None
        for offset in range(view.high_watermark + 1):
            count = count_records(view, Offset(offset), ReadBudget(LONG_MAX))
            assert count == (sum(each >= offset for each in left), True)
        assert first_live_offset(view, ReadBudget(LONG_MAX)) == next(iter(left), None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(STEPS, min_size=12, max_size=50),
    st.sampled_from((SETTINGS, SMALL_MAP)),
    st.sampled_from(SidecarMode),
)
def test_a_log_whose_traffic_stops_is_left_with_what_was_committed_last(
    steps: list[object], cleaner: CleanerSettings, sidecars: SidecarMode
) -> None:
    history = History(CompactedLog(CONFIG, cleaner, sidecars=sidecars))
    for step in steps:
        history.do(step)
    for producer in PRODUCERS:
        history.do(End(producer, "abort"))
    history.do(Append([(b"last", b"")]))

    history.do(Clean(0))
    history.do(Clean(CONFIG.delete_retention_ms))
    history.do(Clean(CONFIG.delete_retention_ms))

    history.check()
    newest = {each.key: each for each in history.sent if each.is_committed}
    data = {each.offset for each in history.sent}
    left = {record.offset for record in history.log.records()}
    assert left & data == {each.offset for each in newest.values() if each.value is not None}


@settings(max_examples=20, deadline=None)
@given(
    st.lists(STEPS, min_size=12, max_size=50),
    st.sampled_from((300, 1 << 20)),
    st.sampled_from(SidecarMode),
)
def test_neither_windows_nor_parts_nor_segments_nor_sidecars_change_what_a_pass_leaves(
    steps: list[object], segment_bytes: int, sidecars: SidecarMode
) -> None:
    """What is untouched, read, or rewritten differs; every batch that is left is the same."""
    narrow = NarrowWindows(dedupe_buffer_size=SMALL_MAP.dedupe_buffer_size)
    config = replace(CONFIG, segment_bytes=segment_bytes)
    plain = History(CompactedLog())
    other = History(CompactedLog(config, narrow, sidecars=sidecars))

    for step in [*map(uninterrupted, steps), Clean(0), Clean(CONFIG.delete_retention_ms)]:
        plain.do(step)
        other.do(step)
        assert other.log.headers() == plain.log.headers()
        assert other.log.pairs() == plain.log.pairs()
        assert other.log.log.clean_offset == plain.log.log.clean_offset


def uninterrupted(step: object) -> object:
    """Returns the step; a pass goes to its end."""
    return replace(step, swaps=None) if isinstance(step, Clean) else step
