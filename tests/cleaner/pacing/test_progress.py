"""The progress of a pass, and its estimated remaining time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.pacing.meter import PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.progress import (
    PassProgress,
    Phase,
    PhaseProgress,
    ProgressSnapshot,
    eta_seconds,
)
from cleaner.pacing.throttle import Throttle
from cleaner.pacing.work_left import MarkLeft
from cleaner.passes.clean import clean
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
    clean(log.log.cleaning, plan, log.settings, meter=meter, monotonic=lambda: 0.0)

    assert {each.phase for each in seen} == {Phase.INDEX, Phase.MARK, Phase.RECOPY, Phase.VERIFY}
    assert all(each.bytes_done <= each.bytes_planned for each in seen)
    assert [each.bytes_done for each in seen] == sorted(each.bytes_done for each in seen)
    indexed = sum(row.size for row in plan.view.sealed_rows)
    assert seen[0].bytes_planned == 2 * indexed, "until it is known that in the last nothing dies"
    done = progress.snapshot()
    assert done.bytes_done == done.bytes_planned > indexed
    assert done.ratio == 1.0


def test_nothing_is_planned_where_there_is_nothing_to_do() -> None:
    progress = PassProgress(lambda: 0.0)

    assert progress.snapshot().phase is Phase.WAITING
    assert progress.snapshot().ratio == 0.0
    assert progress.snapshot().eta_seconds is None


def phase(which: Phase, done: int = 0, planned: int = 0, seconds: float = 0.0) -> PhaseProgress:
    return PhaseProgress(phase=which, done=done, planned=planned, seconds=seconds)


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        # 100 bytes took 10 s; left are 50 to index and 200 to rewrite, which cost twice as much.
        pytest.param(
            [phase(Phase.INDEX, 100, 150, 10.0), phase(Phase.RECOPY, 0, 200)], 45.0, id="index"
        ),
        pytest.param(
            [phase(Phase.MARK, 100, 150, 10.0), phase(Phase.RECOPY, 0, 200)], 25.0, id="mark"
        ),
        # A phase that has made progress is estimated by its own rate.
        pytest.param(
            [
                phase(Phase.INDEX, 100, 100, 10.0),
                phase(Phase.RECOPY, 40, 200, 80.0),
                phase(Phase.VERIFY, 10, 30, 5.0),
            ],
            330.0,
            id="rewrite",
        ),
        pytest.param([phase(Phase.RECOPY, 40, 40, 8.0)], 0.0, id="done"),
        pytest.param([phase(Phase.INDEX, 0, 40, 8.0)], None, id="nothing moved"),
        pytest.param([phase(Phase.WAITING, 0, 0, 8.0)], None, id="waiting"),
    ],
)
def test_the_rest_takes_as_long_as_the_rates_so_far_say(
    phases: list[PhaseProgress], expected: float | None
) -> None:
    assert eta_seconds(phases) == expected


def test_the_time_of_a_phase_is_counted_however_often_it_is_entered() -> None:
    now = 0.0
    progress = PassProgress(lambda: now)
    progress.expect_left(Phase.RECOPY, 100)
    for at, which, count in (
        (0.0, Phase.RECOPY, 25),
        (10.0, Phase.VERIFY, 0),
        (20.0, Phase.RECOPY, 25),
    ):
        now = at
        progress.enter(which)
        progress.read(count)
    now = 30.0

    # 50 of its 100 bytes took 20 s.
    assert progress.snapshot().eta_seconds == pytest.approx(20.0)


def test_later_windows_are_expected_by_the_parts_that_this_one_takes() -> None:
    progress = PassProgress(lambda: 0.0)
    left = MarkLeft(progress)

    left.begin_window(100)
    left.report(10, 0)
    assert progress.snapshot().bytes_planned == 110
    left.report(10, 3)
    assert progress.snapshot().bytes_planned == 10 + 4 * 100
    progress.read(10)
    left.report(0, 0)
    assert progress.snapshot().bytes_planned == 10 + 4 * 100
    left.begin_window(0)
    left.report(400, 3)
    assert progress.snapshot().bytes_planned == 410
