"""Invariants of commits: a group is in the log completely or not at all."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from cleaner.pacing.meter import CleaningAborted
from protocol.wire.numbers import Offset
from storage.files.paths import MANIFEST
from tests.cleaner.invariants.scenes import EACH_SEGMENT_ITS_GROUP, open_again
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.groups import watched_swaps
from tests.harness.log_builder import headers_in
from tests.harness.memory_fs import Loss


def test_invariant_13_each_groups_swap_is_one_atomic_commit_and_recovery_is_idempotent() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))
    before, commits = log.pairs(), []
    found: set[tuple[object, ...]] = set()

    def crash(action: str, path: str) -> None:
        if action == "rename" and path.endswith(f"{MANIFEST}.tmp"):
            commits.append(path)
        for loss in Loss:
            left = CompactedLog()
            left.fs = log.fs.after_crash(loss, Random(len(found)))
            left.log = log.log
            once = (open_again(left), left.pairs(), sorted(left.files()))
            twice = (open_again(left), left.pairs(), sorted(left.files()))
            assert once[1] == twice[1]
            assert not [name for name in once[2] if name.endswith(".cleaned")]
            found.add(tuple(once[1]))

    log.fs.on_operation = crash
    log.execute(log.plan())

    assert len(commits) == 1
    assert found == {tuple(before), tuple(log.pairs())}


def test_invariant_14_the_clean_offset_moves_with_the_last_swap_of_a_pass() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number in range(5):
        log.append_segment((b"a", b"%d" % number), (b"%d" % number, b"1"))
    swapped = 0

    def stop_before_the_last_swap(_seconds: float) -> bool:
        nonlocal swapped
        swapped = sum(segment.is_cleaned for segment in log.log.segments)
        assert log.log.clean_offset == 0
        return swapped == 3

    with pytest.raises(CleaningAborted):
        log.execute(log.plan(), stop=stop_before_the_last_swap)
    log.reopen(is_clean=False)
    assert (swapped, log.log.clean_offset) == (3, 0)

    log.execute(log.plan())
    assert log.log.clean_offset == 10
    log.reopen(is_clean=False)
    assert log.log.clean_offset == 10


@pytest.mark.parametrize("span", [2**31 - 2, 2**31 + 5])
def test_invariant_15_groups_and_outputs_keep_their_bounds_and_no_batch_counts_twice(
    span: int,
) -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=300))
    for number in range(9):
        if number == 5:
            log.log.appender.advance_end(Offset(number + span))
        log.append((b"%d" % number, b"v" * 40))
        log.roll()

    log_segments = log.log.segments[:-1]
    with watched_swaps() as groups:
        report = log.execute(log.plan())

    assert sum(map(len, groups)) + report.segments_untouched == len(log_segments)
    assert groups
    for group in groups:
        assert sum(row.size for row in group) <= 300 or len(group) == 1
        assert group[-1].end_offset - group[0].base_offset <= 2**31 or len(group) == 1
    assert report.records_before == report.records_after > 0
    assert len(log.pairs()) == 9
    for segment in log.log.segments:
        headers = headers_in(segment.files.open().read_at(0, segment.size))
        assert all(each.last_offset - segment.base_offset < 2**31 for each in headers)


@pytest.mark.parametrize("change", ["truncation", "deletion", "policy"])
def test_invariant_19_truncation_deletion_and_another_policy_end_a_pass_and_no_offset_lies(
    change: str,
) -> None:
    """test_races.py tests this at every step of the pass."""
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.execute(log.plan())
    log.append_segment((b"b", b"1"), (b"b", b"2"))
    plan = log.plan()
    match change:
        case "truncation":
            log.log.truncate_to(Offset(1))
        case "deletion":
            log.log.retire()
        case _:
            log.log.update_config(replace(CONFIG, cleanup_policy=("delete",)))
            log.log.wait_for_commit()

    with pytest.raises(CleaningAborted):
        log.execute(plan)

    assert log.log.clean_offset <= log.log.log_end_offset
    if change == "truncation":
        log.append((b"a", b"3"), (b"c", b"1"))
        log.append((b"a", b"4"))
        log.clean()
        assert [(key, value) for _offset, key, value in log.pairs()] == [(b"c", b"1"), (b"a", b"4")]
