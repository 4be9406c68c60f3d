"""When a partition gets a checkpoint: by what a load would read after the last one."""

from __future__ import annotations

import pytest

from protocol.wire.numbers import Offset
from replog.trigger import CompactionSettings
from server.coordination.checkpoints import (
    ASSUMED_BYTES_PER_SECOND,
    CheckpointState,
    DirtyPart,
    SegmentRange,
    TopicCheckpoints,
    bytes_from,
    dirty_part,
    is_large,
)
from server.coordination.state_loading import LoadedCheckpoint, LoadReport


def segment(base: int, end: int, *, size: int, is_cleaned: bool = False) -> SegmentRange:
    return SegmentRange(base_offset=base, end_offset=end, size=size, is_cleaned=is_cleaned)


def state(end_offset: int, size: int = 50) -> CheckpointState:
    return CheckpointState(end_offset=Offset(end_offset), size=size)


LOG = (segment(0, 100, size=1000), segment(100, 200, size=1000))


def test_without_a_checkpoint_all_that_was_not_cleaned_is_dirty() -> None:
    assert dirty_part(LOG, None, clean_offset=0) == DirtyPart(bytes=2000, before_bytes=0)
    assert dirty_part(LOG, None, clean_offset=100) == DirtyPart(bytes=1000, before_bytes=1000)


def test_with_a_checkpoint_the_log_after_it_is_dirty() -> None:
    assert dirty_part(LOG, state(150), clean_offset=0) == DirtyPart(bytes=500, before_bytes=50)


def test_a_pass_past_the_checkpoints_end_leaves_a_clean_log_instead() -> None:
    log = (segment(0, 100, size=300, is_cleaned=True), segment(100, 200, size=1000))

    found = dirty_part(log, state(50), clean_offset=100)

    assert found == DirtyPart(bytes=1000, before_bytes=300)


def test_a_checkpoint_that_a_pass_has_overtaken_does_not_count() -> None:
    """The pass may not have committed its clean offset, after a crash."""
    log = (segment(0, 100, size=300, is_cleaned=True), segment(100, 200, size=1000))

    assert dirty_part(log, state(50), clean_offset=0) == DirtyPart(bytes=1300, before_bytes=0)


def test_a_pass_below_the_checkpoints_end_does_not_matter() -> None:
    log = (segment(0, 100, size=300, is_cleaned=True), segment(100, 200, size=1000))

    assert dirty_part(log, state(200), clean_offset=100) == DirtyPart(bytes=0, before_bytes=50)


@pytest.mark.parametrize(("offset", "expected"), [(0, 1000), (25, 750), (100, 0), (150, 0)])
def test_a_part_of_a_segment_is_estimated_by_its_offsets(offset: int, expected: int) -> None:
    assert bytes_from(segment(0, 100, size=1000), offset) == expected


def test_an_empty_segment_has_no_bytes() -> None:
    assert bytes_from(segment(100, 100, size=0), 150) == 0


def test_a_small_part_does_not_write_a_large_state_again() -> None:
    settings = CompactionSettings(u=0.1)

    assert is_large(DirtyPart(bytes=10, before_bytes=100), settings)
    assert not is_large(DirtyPart(bytes=9, before_bytes=100), settings)
    assert not is_large(DirtyPart(bytes=0, before_bytes=0), settings)


def test_the_rate_is_that_of_the_last_load_of_some_size() -> None:
    checkpoints = TopicCheckpoints(has_commits=True)
    assert checkpoints.bytes_per_second == ASSUMED_BYTES_PER_SECOND

    checkpoints.loaded(0, LoadReport(checkpoint=None, bytes_read=4 << 20, seconds=2.0))
    checkpoints.loaded(1, LoadReport(checkpoint=None, bytes_read=100, seconds=2.0))

    assert checkpoints.bytes_per_second == 2 << 20


def test_a_load_says_which_checkpoint_there_is() -> None:
    checkpoints = TopicCheckpoints(has_commits=True)
    used = LoadedCheckpoint(end_offset=Offset(7), size=100, records=2)

    checkpoints.loaded(0, LoadReport(checkpoint=used, bytes_read=100, seconds=1.0))
    assert checkpoints.states() == {0: state(7, 100)}

    checkpoints.loaded(0, LoadReport(checkpoint=None, bytes_read=100, seconds=1.0))
    assert checkpoints.states() == {}
