"""Interrupted cleaning passes: their swaps stay, and no record is lost."""

from __future__ import annotations

import contextlib
import errno
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.pacing.meter import CleaningAborted
from protocol.wire.numbers import Offset
from storage.files.errors import CutRefused, NoSpace, SegmentRemoved, SwapRefused
from storage.files.paths import LOG
from tests.harness.compacted_log import CONFIG, CompactedLog, superseded_log

RETENTION_MS = CONFIG.delete_retention_ms


def test_each_group_is_swapped_in_as_soon_as_it_is_recopied() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    for number in range(6):
        log.append(
            (b"a", b"%d" % number * 40), *((b"%d-%d" % (number, n), b"v" * 30) for n in (1, 2))
        )
        log.roll()
    plan = log.plan()
    swaps: list[tuple[int, int | None]] = []
    swap = log.log.cleaning.swap

    class Watched:
        """Records the log's swaps."""

        generation = log.log.generation
        log_start_offset = log.log.log_start_offset
        kept_number = 0
        new_cleaned_segment = staticmethod(log.log.cleaning.new_cleaned_segment)
        commit_clean_offset = staticmethod(log.log.cleaning.commit_clean_offset)

        @property
        def cleaning(self) -> Watched:
            return self

        def swap(self, sources, cleaned, *, clean_offset, **others) -> None:  # type: ignore[no-untyped-def]
            staged = [name for name in log.files() if name.endswith(".log.cleaned")]
            assert len(staged) == len(cleaned) == 1
            swap(sources, cleaned, clean_offset=clean_offset, **others)
            swaps.append((sources[0].base_offset, clean_offset))

    log.log, real = Watched(), log.log  # type: ignore[assignment]
    try:
        log.execute(plan)
    finally:
        log.log = real

    # In the sixth segment no record is superseded.
    assert swaps == [(0, None), (3, None), (6, None), (9, None), (12, 18)]


def test_an_aborted_pass_keeps_its_swaps_discards_its_staging_and_costs_no_record() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    for number in range(6):
        log.append_segment((b"a", b"%d" % number * 40), (b"%d" % number, b"v"))
    before = {record.key: record.value for record in log.records()}

    def stop_at_the_third_group(_seconds: float) -> bool:
        return sum(segment.is_cleaned for segment in log.log.segments) == 2

    with pytest.raises(CleaningAborted):
        log.execute(log.plan(), stop=stop_at_the_third_group)

    swapped = [segment for segment in log.log.segments if segment.is_cleaned]
    assert len(swapped) == 2
    assert log.log.clean_offset == 0
    assert not [name for name in log.files() if name.endswith(".cleaned")]
    assert {record.key: record.value for record in log.records()} == before


def interrupted(groups: int) -> CompactedLog:
    """Returns a log of six segments with a value of `a` each, of which a pass has swapped some."""
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    for number in range(6):
        log.append_segment((b"a", b"%d" % number * 40), (b"%d" % number, b"v"))
    with contextlib.suppress(CleaningAborted):
        log.execute(
            log.plan(),
            stop=lambda _: sum(each.is_cleaned for each in log.log.segments) == groups,
        )
    return log


def test_no_cut_that_keeps_keys_goes_below_what_an_interrupted_pass_has_seen() -> None:
    log = interrupted(groups=2)
    before, generation = log.records(), log.log.generation
    base_offset = log.log.segments[-1].base_offset
    assert (log.log.clean_offset, log.log.cut_offset_min) == (0, base_offset)
    for offset in (0, 5, base_offset - 1):
        with pytest.raises(CutRefused, match="compacted"):
            log.log.truncate_to(Offset(offset), keeps_keys=True)
    assert (log.records(), log.log.generation) == (before, generation)
    log.reopen(is_clean=False)
    assert log.log.cut_offset_min == base_offset

    log.clean()

    assert log.log.cut_offset_min == log.log.clean_offset
    log.log.truncate_to(log.log.clean_offset, keeps_keys=True)
    log.log.truncate_to(Offset(1))
    assert log.log.cut_offset_min <= 1


@given(groups=st.integers(0, 6))
def test_every_cut_from_the_least_offset_on_keeps_the_last_value_of_each_key(groups: int) -> None:
    log = interrupted(groups)
    values = [(b"a", b"%d" % at * 40) for at in range(6)]
    written = [pair for at, value in enumerate(values) for pair in (value, (b"%d" % at, b"v"))]
    left = {(record.offset, record.key, record.value) for record in log.records()}
    for cut in range(log.log.cut_offset_min, log.log.log_end_offset + 1):
        last = {key: (at, key, value) for at, (key, value) in enumerate(written[:cut])}
        assert left >= set(last.values()), cut


@pytest.mark.parametrize(("offset", "is_refused"), [(3, True), (11, True), (12, False)])
def test_a_cut_during_a_pass_is_refused_below_what_it_has_seen_and_wins_above(
    offset: int, is_refused: bool
) -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    for number in range(6):
        log.append_segment((b"a", b"%d" % number * 40), (b"%d" % number, b"v"))
    log.append((b"b", b"active"))
    generation = log.log.generation
    outcomes: list[bool] = []

    def cut(_seconds: float) -> bool:
        if sum(each.is_cleaned for each in log.log.segments) == 2 and not outcomes:
            outcomes.append(False)
            try:
                log.log.truncate_to(Offset(offset), keeps_keys=True)
            except CutRefused:
                outcomes[-1] = True
        return False

    loses = contextlib.nullcontext() if is_refused else pytest.raises(CleaningAborted)
    with loses:
        log.execute(log.plan(), stop=cut)

    assert outcomes == [is_refused]
    assert (log.log.generation > generation) is not is_refused
    assert log.log.log_end_offset == (13 if is_refused else 12)


def test_a_truncation_meanwhile_aborts_the_pass() -> None:
    log = superseded_log()
    plan = log.plan()
    log.log.truncate_to(Offset(3))

    with pytest.raises(CleaningAborted):
        log.execute(plan)

    assert log.pairs() == [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2")]


def test_a_policy_change_meanwhile_aborts_the_pass() -> None:
    log = superseded_log()
    plan = log.plan()
    log.log.update_config(replace(CONFIG, cleanup_policy=("delete",)))

    with pytest.raises(CleaningAborted):
        log.execute(plan)

    assert len(log.pairs()) == 5


def test_a_pass_whose_sources_were_cleaned_by_another_one_is_refused() -> None:
    log = superseded_log()
    stale = log.plan()
    # A reader still has the old segments open, otherwise their files would be gone.
    for segment in log.log.segments:
        segment.files.pin()
    log.clean()

    with pytest.raises(SwapRefused):
        log.execute(stale)

    assert len(log.pairs()) == 3
    assert not [name for name in log.files() if name.endswith(".cleaned")]


def test_a_pass_whose_sources_are_gone_reads_nothing_wrong() -> None:
    log = superseded_log()
    stale = log.plan()
    log.clean()

    with pytest.raises(SegmentRemoved):
        log.execute(stale)

    assert len(log.pairs()) == 3


def test_what_retention_deletes_while_keys_are_mapped_is_left_out_of_the_pass() -> None:
    """Otherwise no pass might ever complete over a log that also loses old segments."""
    log = superseded_log()
    log.clean()
    log.append_segment((b"a", b"3"))
    log.append_segment((b"a", b"4"), (b"c", b"2"))
    log.roll()
    plan = log.plan()
    assert len(plan.view.segments) == 3
    log.log.delete_records(Offset(5))

    report = log.execute(plan)

    assert report.segments_before + report.segments_untouched == 2
    assert log.pairs() == [(6, b"a", b"4"), (7, b"c", b"2")]
    assert (log.log.log_start_offset, log.log.clean_offset) == (5, 8)


def corrupt_log(position: int, data: bytes) -> CompactedLog:
    log = superseded_log()
    path = log.log.segments[1].path(LOG)
    log.fs.overwrite(path, position, data)
    return log


@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(65, b"\xff", id="a_record_byte_flipped"),
        pytest.param(16, b"\x01", id="another_magic"),
        pytest.param(8, struct.pack(">i", 0x7FFF_0000), id="a_size_beyond_the_segment"),
        pytest.param(8, struct.pack(">i", 3), id="a_size_below_a_header"),
        pytest.param(8, struct.pack(">i", -1), id="a_negative_size"),
    ],
)
def test_a_segment_with_a_damaged_batch_stays_as_it_is(position: int, data: bytes) -> None:
    log = corrupt_log(position, data)
    segment = log.log.segments[1]
    before = log.fs.read_bytes(segment.path(LOG))

    report = log.execute(log.plan())

    assert [fence.base_offset for fence in report.fences] == [segment.base_offset]
    assert log.log.segments[1] is segment
    assert log.fs.read_bytes(segment.path(LOG)) == before
    assert not [name for name in log.files() if name.endswith(".cleaned")]


def test_a_file_shorter_than_its_row_is_corruption_not_the_end_of_the_data() -> None:
    log = superseded_log()
    log.log.segments[2].files.open().truncate(10)

    report = log.execute(log.plan())

    assert ["file ends early" in fence.reason for fence in report.fences] == [True]
    assert report.fences[0].base_offset == log.log.segments[-2].base_offset
    assert log.log.clean_offset == report.fences[0].base_offset


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    log = superseded_log()
    log.fs.faults.fail("append to", errno.ENOSPC, path=".cleaned")

    with pytest.raises(NoSpace):
        log.execute(log.plan())

    assert len(log.pairs()) == 5
    assert not [name for name in log.files() if name.endswith(".cleaned")]
    assert log.execute(log.plan()).records_after == 3
