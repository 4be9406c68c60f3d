"""Segments are indexed before a pass needs it, and their keys counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.keys.sketch import STANDARD_ERROR
from cleaner.pacing.meter import CleaningAborted
from cleaner.rules.reclaimable import Due
from protocol.wire.errors import CorruptBatch
from storage.files.paths import KEYS, LOG
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.counted_keys import EVERYTHING, CountedKeys
from tests.harness.damage import flip
from tests.harness.log_builder import KeyValue
from tests.harness.transactional_producer import TransactionalProducer

VALUE = b"v" * 100


def pairs(first: int, count: int) -> list[KeyValue]:
    return [(b"%d" % number, VALUE) for number in range(first, first + count)]


def append_segment(log: CompactedLog, *ranges: tuple[int, int]) -> None:
    """Append a batch for each range of keys (the first, and how many), then roll."""
    for first, count in ranges:
        log.append(*pairs(first, count))
    log.roll()


def sidecars(log: CompactedLog) -> int:
    return sum(name.endswith(KEYS) for name in log.files())


def test_a_pass_finds_the_sidecars_that_were_made_ahead() -> None:
    log = CompactedLog()
    append_segment(log, (0, 50))
    append_segment(log, (25, 50))
    assert sidecars(log) == 0

    CountedKeys(log).look()

    assert sidecars(log) == 2
    report = log.execute(log.plan())
    assert report.sidecars_built == 0
    assert report.records_by_verdict["dropped_superseded"] == 25


def test_what_later_records_supersede_is_estimated_with_its_error() -> None:
    log = CompactedLog()
    append_segment(log, (0, 2000))
    append_segment(log, (0, 1000), (0, 1000))

    found = CountedKeys(log).look()

    assert found is not None
    assert found.entries == 4000
    assert found.superseded_error == pytest.approx(STANDARD_ERROR * 2000, rel=0.1)
    assert abs(found.superseded - 2000) < 4 * found.superseded_error
    assert found.counted_bytes == found.dirty_bytes == sum(s.size for s in log.log.segments)
    assert found.gain == pytest.approx(0.5, abs=0.1)
    assert found.bytes == pytest.approx(found.counted_bytes / 2, rel=0.2)


def test_the_known_keys_of_the_clean_section_correct_the_sketch() -> None:
    """All dirty records have keys of the clean section, so nothing is left to estimate."""
    log = CompactedLog()
    append_segment(log, (0, 3000))
    log.clean()
    append_segment(log, (1000, 500))

    found = CountedKeys(log).look(EVERYTHING)

    assert found is not None
    assert found.superseded == pytest.approx(500)
    assert found.superseded_error == pytest.approx(0, abs=1e-6)


def test_a_log_of_new_keys_only_frees_nothing() -> None:
    log = CompactedLog()
    append_segment(log, (0, 1000))
    log.clean()
    append_segment(log, (1000, 1000))

    found = CountedKeys(log).look()

    assert found is not None
    assert abs(found.superseded) < 4 * found.superseded_error
    assert 0 <= found.gain < 0.2


def test_the_clean_section_is_read_once_its_sidecars_are_no_larger_than_what_is_dirty() -> None:
    log = CompactedLog()
    append_segment(log, (0, 2000))
    log.clean()
    keys = CountedKeys(log)
    append_segment(log, (0, 10))

    assert keys.look() is None
    assert sidecars(log) == 2, "dirty segments are indexed all the same"

    append_segment(log, (0, 500))
    found = keys.look()
    assert found is not None
    assert found.entries == 2510


def test_a_segment_in_which_the_dirty_section_begins_belongs_to_both() -> None:
    """A pass ended before a transaction that was open then, in the middle of a segment."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 7)
    log.append(*pairs(0, 40))
    producer.send(*pairs(80, 1))
    append_segment(log, (0, 40), (81, 20))
    log.execute(log.plan())
    producer.commit()
    assert log.log.segments[0].base_offset < log.log.clean_offset < log.log.segments[0].end_offset
    keys = CountedKeys(log)
    log.roll()

    found = keys.look(EVERYTHING)

    count = keys.count
    assert found is not None
    assert count is not None
    assert (count.clean.entries, count.dirty.entries) == (40, 61)
    assert found.counted_bytes == log.log.size_bytes
    assert found.superseded == pytest.approx(40, abs=3)


def test_a_count_continues_with_the_segments_that_came_since() -> None:
    log, whole = CompactedLog(), None
    keys = CountedKeys(log)
    for number in range(4):
        append_segment(log, (100 * number, 150))
        whole = keys.look(EVERYTHING)

    assert whole == CountedKeys(log).look(EVERYTHING)
    assert keys.count is not None
    assert keys.count.dirty.rows.segments == 4


def test_a_count_that_is_stopped_continues_where_it_was() -> None:
    log = CompactedLog()
    for number in range(4):
        append_segment(log, (100 * number, 150))
    expected = CountedKeys(log).look(EVERYTHING)
    keys, stops = CountedKeys(log), 0
    for looks in range(1, 30):
        left = looks % 4

        def stop(_seconds: float) -> bool:
            nonlocal left
            left -= 1
            return left < 0

        try:
            keys.look(EVERYTHING, stop=stop)
            break
        except CleaningAborted:
            stops += 1

    assert stops > 1
    assert keys.estimate == expected


def test_a_pass_makes_what_was_counted_void() -> None:
    log = CompactedLog()
    append_segment(log, (0, 50), (0, 50))
    keys = CountedKeys(log)
    assert keys.look(EVERYTHING) is not None

    log.clean()

    assert keys.look(EVERYTHING) is None
    append_segment(log, (0, 10))
    found = keys.look(EVERYTHING)
    assert found is not None
    assert found.entries == 60


@pytest.mark.parametrize("changes", [{"compaction_versions": 2}, {"cleanup_policy": ("delete",)}])
def test_where_the_number_of_keys_says_nothing_none_are_counted(changes: dict[str, object]) -> None:
    log = CompactedLog(replace(CONFIG, **changes))  # type: ignore[arg-type]
    append_segment(log, (0, 50), (0, 50))

    assert CountedKeys(log).look(EVERYTHING) is None
    assert sidecars(log) == 0


def test_damage_ends_a_count_and_is_left_to_the_pass() -> None:
    log = CompactedLog()
    append_segment(log, (0, 50))
    append_segment(log, (0, 50))
    flip(log.fs, log.log.segments[1].path(LOG), 70)
    keys = CountedKeys(log)

    with pytest.raises(CorruptBatch):
        keys.look(EVERYTHING)

    assert keys.count is not None
    assert keys.count.dirty.rows.segments == 1
    report = log.execute(log.plan())
    assert len(report.fences) == 1
    assert keys.look(EVERYTHING) is None, "what a damaged segment holds back is not known"


def test_a_damaged_sidecar_is_made_again() -> None:
    log = CompactedLog()
    append_segment(log, (0, 50), (0, 50))
    expected = CountedKeys(log).look(EVERYTHING)
    flip(log.fs, log.log.segments[0].path(KEYS), 100)

    assert CountedKeys(log).look(EVERYTHING) == expected


def test_nothing_is_due_where_nothing_came() -> None:
    log = CompactedLog()
    append_segment(log, (0, 50))
    keys = CountedKeys(log)
    keys.look()

    assert keys.plan().due == Due(clean=False, dirty=False)
    append_segment(log, (0, 50))
    assert keys.plan().due == Due(clean=False, dirty=True)
