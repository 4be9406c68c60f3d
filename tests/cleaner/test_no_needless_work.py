"""A pass reads and rewrites only what changes, and one rewrite suffices for any number of keys."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from cleaner.pacing.meter import CleaningAborted
from storage.files.paths import LOG
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.memory_fs import Loss
from tests.harness.sidecar_mode import SidecarMode

RETENTION_MS = CONFIG.delete_retention_ms
SEGMENT_BYTES = 1000
MODES = tuple(SidecarMode)


def log_of_full_segments(count: int = 20) -> CompactedLog:
    """Returns full, clean segments of ten keys each, without common keys."""
    log = CompactedLog(replace(CONFIG, segment_bytes=SEGMENT_BYTES))
    for segment in range(count):
        for number in range(10):
            log.append((b"%02d-%d" % (segment, number), b"v" * 20))
        log.roll()
    log.clean()
    assert len(log.log.segments) == count + 1
    return log


def names(log: CompactedLog) -> list[str]:
    return [name for name in log.files() if name.endswith(LOG)]


def sizes(log: CompactedLog) -> int:
    return sum(segment.size for segment in log.log.segments)


def test_a_pass_rewrites_the_one_segment_in_which_one_record_dies() -> None:
    log = log_of_full_segments()
    before = names(log)
    log.append((b"07-3", b"new"))

    report = log.clean()

    gone = [name for name in before if name not in names(log)]
    assert gone == [before[7]]
    assert (report.groups, report.segments_before, report.segments_untouched) == (1, 1, 20)
    assert report.bytes_after < report.bytes_before < SEGMENT_BYTES
    assert report.records_before == 10
    assert (b"07-3", b"new") in [(key, value) for _, key, value in log.pairs()]
    assert len(log.pairs()) == 200


def test_a_pass_reads_of_what_it_does_not_rewrite_the_sidecars_only() -> None:
    log = log_of_full_segments()
    log.append((b"07-3", b"new"))

    report = log.clean()

    # Of the rewritten segment: the source, and the output for verification. Of the others: 201 entries
    # with their blocks, and those for the map.
    new_segment = log.log.segments[-2].size
    sidecars = report.bytes_read - report.bytes_before - report.bytes_after - new_segment
    assert 24 * 201 <= sidecars < 24 * 201 + 60 * 24 + 1000
    assert report.sidecars_built == 1


def test_a_clean_log_without_anything_due_is_neither_read_nor_written() -> None:
    log = log_of_full_segments()
    before = names(log)

    report = log.clean()

    assert (report.bytes_read, report.bytes_written, report.groups) == (0, 0, 0)
    assert (report.segments_untouched, report.parts) == (20, 0)
    assert names(log) == before


def test_new_keys_alone_move_the_clean_offset_and_rewrite_nothing() -> None:
    log = log_of_full_segments(3)
    before = names(log)
    for number in range(10):
        log.append((b"new-%d" % number, b"v" * 20))

    report = log.clean()

    assert report.groups == 0
    assert log.log.clean_offset == report.end_offset == 40
    assert set(before) <= set(names(log))
    log.reopen(is_clean=False)
    assert log.log.clean_offset == 40


def test_a_tombstone_is_work_twice_and_then_no_more() -> None:
    log = log_of_full_segments(4)
    log.append_segment((b"01-1", None), (b"end", b"1"))
    assert log.execute(log.plan()).groups == 2
    assert log.execute(log.plan()).groups == 0

    log.now_ms += RETENTION_MS
    assert log.execute(log.plan()).groups == 1
    assert log.execute(log.plan()).groups == 0
    assert b"01-1" not in [key for _, key, _ in log.pairs()]


def test_small_segments_come_down_to_one_and_are_then_left_alone() -> None:
    log = CompactedLog()
    for number in range(40):
        log.append_segment((b"%02d" % number, b"v" * 20))
        log.clean_until_idle()

    assert len(log.log.segments) < 8
    written = sum(log.clean().bytes_written for _ in range(3))
    assert written == 0
    assert len(log.pairs()) == 40


def test_merged_segments_keep_the_size_though_what_stays_is_larger_than_what_goes() -> None:
    """The remaining size is estimated by counting records, but the output's real size counts."""
    log = CompactedLog(replace(CONFIG, segment_bytes=3000))
    for segment in range(10):
        for _ in range(15):
            log.append((b"again", b""))
        log.append_segment((b"%d" % segment, b"large" * 200))
    log.append_segment((b"again", b"end"))

    log.execute(log.plan())

    assert max(segment.size for segment in log.log.segments) <= 3000
    assert len(log.log.segments) == 6
    assert len(log.pairs()) == 11


def test_a_segment_that_is_larger_than_segments_are_now_is_not_cut_up() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=10_000))
    log.append_segment((b"a", b""), *((b"%d" % number, b"v" * 100) for number in range(20)))
    log.log.update_config(replace(CONFIG, segment_bytes=500))
    log.append_segment((b"a", b"new"))

    log.execute(log.plan())

    first, *_ = log.log.segments
    assert (first.record_count, len(log.log.segments)) == (20, 3)


# -------------------------------------------------------------------- any number of keys


@pytest.mark.parametrize("sidecars", [SidecarMode.KEPT, SidecarMode.OFF])
def test_a_map_of_sixteen_slots_cleans_ten_thousand_keys_in_one_pass_with_one_rewrite(
    sidecars: SidecarMode,
) -> None:
    log = CompactedLog(
        replace(CONFIG, segment_bytes=60_000),
        replace(SETTINGS, dedupe_buffer_size=24 * 16),
        sidecars=sidecars,
    )
    random = Random(0)
    for round_ in range(2):
        for start in range(0, 10_000, 500):
            keys = [b"%05d" % number for number in range(start, start + 500)]
            random.shuffle(keys)
            log.append(*((key, b"%d" % round_) for key in keys))
    log.roll()
    before = sizes(log)

    report = log.execute(log.plan())

    assert report.end_offset == report.planned_end_offset
    assert (report.keys_mapped, log.log.clean_offset) == (10_000, 20_000)
    assert report.parts >= 10_000 / 16
    assert sorted(log.pairs()) == sorted(log.pairs(), key=lambda pair: pair[0])
    assert {(key, value) for _, key, value in log.pairs()} == {
        (b"%05d" % number, b"1") for number in range(10_000)
    }
    # Each byte is written at most once, and so is each sidecar: 24 bytes per record, and a little more.
    sidecar_bytes = 24 * (20_000 + 10_000) + 200 * 60
    assert report.bytes_after <= report.bytes_written <= before + sidecar_bytes
    assert report.records_before <= 20_000


def test_marks_that_do_not_fit_at_once_are_made_window_by_window_with_one_rewrite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_BYTES_MIN", 2)
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_SHARE", 1000)
    log = CompactedLog(
        replace(CONFIG, segment_bytes=500), replace(SETTINGS, dedupe_buffer_size=24 * 16)
    )
    for round_ in range(3):
        for number in range(60):
            log.append((b"%02d" % number, b"%d" % round_))
            if number % 10 == 9:
                log.roll()

    report = log.execute(log.plan())

    assert log.pairs() == [(120 + number, b"%02d" % number, b"2") for number in range(60)]
    assert report.records_before <= 180
    while log.execute(log.plan()).groups:
        assert len(log.log.segments) > 2, "what was small at a window's edge merges later"


def test_a_window_without_keys_is_behind_the_pass_when_the_keys_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_BYTES_MIN", 2)
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_SHARE", 1000)
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=24 * 16))
    log.append_segment((None, b"from before the topic was compacted"))
    log.append_segment(*((b"%02d" % number, b"1") for number in range(60)))

    report = log.execute(log.plan())

    assert report.parts > 1
    assert [key for _, key, _ in log.pairs()] == [b"%02d" % number for number in range(60)]
    assert log.log.clean_offset == 61


# -------------------------------------------------------------------- progress across a restart


def test_what_was_swapped_in_before_a_restart_is_neither_read_nor_written_again() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=300))
    for segment in range(10):
        log.append_segment(
            (b"a", b"%d" % segment), *((b"%d-%d" % (segment, n), b"v" * 20) for n in (1, 2))
        )

    def stop(_seconds: float) -> bool:
        return sum(segment.is_cleaned for segment in log.log.segments) >= 4

    with pytest.raises(CleaningAborted):
        log.execute(log.plan(), stop=stop)
    done = names(log)[:4]
    log.reopen(is_clean=False, loss=Loss.NOTHING)

    report = log.execute(log.plan())

    assert report.sidecars_built == 0
    assert (report.groups, report.segments_untouched) == (5, 5)
    assert set(done) <= set(names(log)), "what was done was done again"
    assert len(log.pairs()) == 21


@pytest.mark.parametrize("seed", range(10))
def test_every_mode_of_sidecars_leads_to_the_same_log(seed: int) -> None:
    logs = {mode: CompactedLog(replace(CONFIG, segment_bytes=500), sidecars=mode) for mode in MODES}
    built = {mode: clean_a_history(log, Random(seed)) for mode, log in logs.items()}

    plain = logs[SidecarMode.KEPT]
    for log in logs.values():
        assert log.pairs() == plain.pairs()
        assert log.headers() == plain.headers()
        assert log.log.clean_offset == plain.log.clean_offset == log.log.log_end_offset
    assert built[SidecarMode.KEPT] < min(built[SidecarMode.OFF], built[SidecarMode.MISSING])


def clean_a_history(log: CompactedLog, random: Random) -> int:
    """Write and clean, six times. Returns how many sidecars were made."""
    built = 0
    for _ in range(6):
        for _ in range(10):
            value = None if random.random() < 0.2 else b"%d" % random.randrange(9)
            log.append((b"%d" % random.randrange(12), value))
            if random.random() < 0.2:
                log.roll()
        built += log.clean().sidecars_built
        log.now_ms += RETENTION_MS // 2
    return built
