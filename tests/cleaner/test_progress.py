"""How far a pass says it is, and when it may be over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.clean import clean
from cleaner.meter import PassMeter
from cleaner.probe import SilentProbe
from cleaner.progress import PassProgress, Phase, ProgressSnapshot, eta_seconds
from cleaner.throttle import Throttle
from tests.harness.compacted_log import CONFIG, CompactedLog


def test_a_pass_goes_through_its_phases_up_to_all_that_it_planned() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=300))
    for value in range(9):
        log.append_segment((b"a", bytes([value]) * 100), (b"b", b"x"))
    plan = log.plan()
    progress = PassProgress(lambda: 0.0)
    seen: list[ProgressSnapshot] = []

    def look(_seconds: float) -> bool:
        seen.append(progress.snapshot())
        return False

    meter = PassMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=look,
        is_stale=lambda: False,
        progress=progress,
    )
    clean(log.log, plan, log.settings, meter=meter, monotonic=lambda: 0.0)

    indexed = sum(row.size for row in plan.view.sealed_rows)
    total = 2 * indexed - log.log.segments[-2].size
    assert {each.phase for each in seen} == set(Phase) - {Phase.WAITING, Phase.SEARCH}
    # In the last segment nothing dies; that is known once the records are marked.
    assert {each.bytes_planned for each in seen} == {2 * indexed, total}
    assert [each.bytes_done for each in seen] == sorted(each.bytes_done for each in seen)
    assert progress.snapshot().bytes_done == total
    assert progress.snapshot().ratio == 1.0


def test_nothing_is_planned_where_there_is_nothing_to_do() -> None:
    progress = PassProgress(lambda: 0.0)

    assert progress.snapshot().phase is Phase.WAITING
    assert progress.snapshot().ratio == 0.0
    assert progress.snapshot().eta_seconds is None


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        # 100 bytes took 10 s; 50 to map, then 200 to be read, written and read again.
        pytest.param({"index_left": 50, "recopied": 0, "recopy_left": 200}, 65.0, id="mapping"),
        # What was rewritten so far took 1.5 bytes of I/O a byte.
        pytest.param(
            {"index_left": 0, "recopied": 40, "recopy_left": 200, "recopy_io_bytes": 60},
            30.0,
            id="rewriting",
        ),
        pytest.param({"index_left": 0, "recopied": 40, "recopy_left": 0}, 0.0, id="done"),
    ],
)
def test_the_rest_takes_as_long_as_the_rate_so_far_says(
    left: dict[str, int], expected: float
) -> None:
    given = {"recopy_io_bytes": 0} | left

    assert eta_seconds(io_bytes=100, seconds=10.0, **given) == expected


def test_before_anything_moved_nothing_is_foretold() -> None:
    assert (
        eta_seconds(
            io_bytes=0, seconds=1.0, index_left=9, recopied=0, recopy_left=9, recopy_io_bytes=0
        )
        is None
    )
