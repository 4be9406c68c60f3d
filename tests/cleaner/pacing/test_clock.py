"""The clock of delete horizons when the wall clock steps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cleaner.pacing.clock import STEP_MS_MAX, TRUST_MS, HorizonClock

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


@dataclass(slots=True)
class SteppingClock:
    """Separate wall and monotonic times."""

    wall_ms: int = START_MS
    elapsed_ms: int = 5_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.elapsed_ms / 1000

    def run(self, ms: int) -> None:
        self.wall_ms += ms
        self.elapsed_ms += ms


def test_both_times_are_the_wall_time_while_the_clock_runs_evenly() -> None:
    clock = SteppingClock()
    horizon_clock = HorizonClock(clock)

    clock.run(30 * DAY_MS)

    assert horizon_clock.read() == (clock.wall_ms, clock.wall_ms)


@pytest.mark.parametrize("step_ms", [STEP_MS_MAX, -STEP_MS_MAX])
def test_a_small_step_is_believed_at_once(step_ms: int) -> None:
    clock = SteppingClock()
    horizon_clock = HorizonClock(clock)

    clock.wall_ms += step_ms

    assert horizon_clock.read() == (clock.wall_ms, clock.wall_ms)


def test_a_year_ahead_ends_no_horizon_and_new_ones_count_from_it() -> None:
    clock = SteppingClock()
    horizon_clock = HorizonClock(clock)

    clock.wall_ms += 365 * DAY_MS

    assert horizon_clock.read() == (START_MS, START_MS + 365 * DAY_MS)


def test_a_year_back_holds_horizons_to_the_time_that_is_shown_now() -> None:
    clock = SteppingClock()
    horizon_clock = HorizonClock(clock)

    clock.wall_ms -= 365 * DAY_MS

    assert horizon_clock.read() == (START_MS - 365 * DAY_MS, START_MS)


def test_a_stepped_clock_is_believed_once_it_has_held() -> None:
    clock = SteppingClock()
    horizon_clock = HorizonClock(clock)
    clock.wall_ms += 365 * DAY_MS
    horizon_clock.read()

    clock.run(TRUST_MS - 1)
    assert horizon_clock.read()[0] < clock.wall_ms
    clock.run(1)

    assert horizon_clock.read() == (clock.wall_ms, clock.wall_ms)


def test_a_second_step_begins_the_wait_anew() -> None:
    clock = SteppingClock()
    horizon_clock = HorizonClock(clock)
    clock.wall_ms += 365 * DAY_MS
    horizon_clock.read()
    clock.run(TRUST_MS // 2)
    clock.wall_ms += 365 * DAY_MS
    horizon_clock.read()

    clock.run(TRUST_MS // 2)

    assert horizon_clock.read()[0] < clock.wall_ms


def test_a_clock_that_is_set_right_again_is_believed_at_once() -> None:
    clock = SteppingClock()
    horizon_clock = HorizonClock(clock)
    clock.wall_ms += 365 * DAY_MS
    horizon_clock.read()

    clock.wall_ms -= 365 * DAY_MS

    assert horizon_clock.read() == (START_MS, START_MS)
