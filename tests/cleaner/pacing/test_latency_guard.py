"""The latency guard: how it adapts the cleaner's rate to the latency of produces."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cleaner.pacing.latency_guard import (
    CEILING,
    FLOOR,
    JUDGED_PRODUCES_MIN,
    START,
    STEP,
    TOLERANCE,
    GuardState,
    LatencyWindow,
    after_window,
)

QUIET_P99 = 0.001


def window(
    p99_seconds: float = QUIET_P99,
    *,
    produces: int = 1000,
    cleaner_bytes: int = 1 << 40,
    seconds: float = 1.0,
) -> LatencyWindow:
    return LatencyWindow(
        seconds=seconds, produces=produces, p99_seconds=p99_seconds, cleaner_bytes=cleaner_bytes
    )


def quiet(p99_seconds: float = QUIET_P99) -> LatencyWindow:
    return window(p99_seconds, cleaner_bytes=0)


def nobody() -> LatencyWindow:
    return window(0.0, produces=0)


def at(rate: float) -> GuardState:
    return GuardState(rate=rate, quiet_p99=QUIET_P99, is_quiet_known=True)


def after(state: GuardState, *windows: LatencyWindow) -> GuardState:
    for each in windows:
        state = after_window(state, each)
    return state


def test_without_produces_the_cleaner_is_not_held_back() -> None:
    assert after(GuardState(), nobody()).rate == math.inf
    assert after(at(FLOOR), nobody()) == at(math.inf)


def test_a_pass_under_traffic_starts_at_the_starting_rate() -> None:
    assert after(GuardState(), quiet()) == at(START)
    assert after(at(FLOOR), quiet()) == at(START)


def test_produces_that_begin_during_a_pass_bring_it_back_to_the_starting_rate() -> None:
    """What they saw beside a pass without a limit says nothing about a rate, nor about quiet time."""
    for begun in (window(), window(produces=1), window(10 * QUIET_P99), window(QUIET_P99 / 10)):
        assert after(at(math.inf), begun) == at(START)
        assert after(GuardState(), begun) == GuardState(rate=START)


def test_the_rate_is_halved_when_p99_passes_the_tolerance() -> None:
    assert after(at(START), window(TOLERANCE * QUIET_P99 * 1.01)).rate == START / 2
    assert after(at(START), window(TOLERANCE * QUIET_P99)).rate == 2 * START


def test_the_rate_doubles_until_it_was_too_fast_and_then_grows_by_steps() -> None:
    fast = after(at(START), window(), window())
    assert fast == at(4 * START)
    slowed = after(fast, window(1.0))
    assert slowed == replace(at(2 * START), threshold=2 * START)
    assert after(slowed, window()).rate == 2 * START + STEP


def test_the_next_pass_doubles_up_to_what_was_not_too_fast() -> None:
    slowed = after(at(4 * START), window(1.0), window(), window())
    assert slowed.rate == 2 * START + 2 * STEP
    next_pass = after(slowed, quiet(), window())
    assert next_pass.rate == 2 * START
    assert after(next_pass, window()).rate == 2 * START + STEP
    assert after(next_pass, window(), window()).rate == 2 * START + 2 * STEP


def test_a_rate_that_was_not_used_does_not_count_as_fine() -> None:
    slowed = after(at(START), *[window(1.0)] * 5)
    unused = after(slowed, quiet(), window(cleaner_bytes=1))
    assert unused == replace(at(START), threshold=FLOOR)


def test_what_was_too_fast_is_remembered_while_nobody_produces() -> None:
    slowed = after(at(START), window(1.0))
    assert after(slowed, nobody()) == replace(slowed, rate=math.inf)
    assert after(slowed, nobody(), window(produces=1)) == replace(slowed, rate=START)


def test_the_rate_never_falls_below_the_floor_nor_rises_above_the_ceiling() -> None:
    assert after(at(START), *[window(1.0)] * 5).rate == FLOOR
    assert after(at(START), *[window()] * 1000).rate == CEILING


def test_a_late_backlog_wins_within_a_few_windows_and_the_guard_learns_nothing_meanwhile() -> None:
    state, slow, rates = at(FLOOR), window(100 * QUIET_P99), list[float]()

    while state.rate < CEILING:
        state = after_window(state, slow, is_late=True)
        rates.append(state.rate)

    assert rates[0] == START
    assert len(rates) < 8
    assert after_window(state, slow, is_late=True).rate == CEILING
    assert state.quiet_p99 == QUIET_P99
    # Once the backlog is in time again, produces count again.
    assert after_window(state, slow).rate == CEILING / 2


def test_without_produces_a_late_backlog_is_not_held_back_either() -> None:
    assert after_window(at(FLOOR), nobody(), is_late=True).rate == math.inf
    assert after_window(GuardState(), window(QUIET_P99), is_late=True).rate == START


def test_a_rate_that_the_cleaner_does_not_use_does_not_grow() -> None:
    assert after(at(START), window(cleaner_bytes=int(START / 3))).rate == START


def test_too_few_produces_are_not_judged() -> None:
    few = window(1.0, produces=JUDGED_PRODUCES_MIN - 1)

    assert after(at(START), few) == at(START)


def test_quiet_time_is_learned_only_while_the_cleaner_rests() -> None:
    disturbed = after(at(START), *[window(1.5 * QUIET_P99)] * 20)
    rested = after(at(START), *[quiet(1.5 * QUIET_P99)] * 20)

    assert disturbed.quiet_p99 == QUIET_P99
    assert rested.quiet_p99 is not None
    assert QUIET_P99 * 1.45 < rested.quiet_p99 <= QUIET_P99 * 1.5


def test_produces_that_become_faster_are_learned_at_any_time() -> None:
    faster = after(at(START), *[window(QUIET_P99 / 4)] * 30)

    assert faster.quiet_p99 is not None
    assert faster.quiet_p99 < QUIET_P99 / 3.9


def test_a_latency_that_stays_high_at_the_floor_is_not_the_cleaners_and_lets_it_go() -> None:
    """A producer that starts sending larger batches must not keep a pass at the floor for ever."""
    slower = [window(10 * QUIET_P99)]

    state = after(at(START), *slower * 60)

    assert state.rate > FLOOR


def test_without_a_quiet_time_the_first_window_stands_for_it_and_the_rate_grows_by_steps() -> None:
    state = after(GuardState(), window(), window(QUIET_P99), window(QUIET_P99))
    assert state == GuardState(rate=START + 2 * STEP, quiet_p99=QUIET_P99)
    assert after(state, quiet(), window()).rate == 2 * START


def test_a_start_beside_a_backlog_is_not_judged_by_what_the_backlog_did() -> None:
    """Produces take 100 ms beside a pass without a limit, and as long as alone up to 300 MB/s."""
    state, rates = GuardState(), []
    for _ in range(300):
        p99 = QUIET_P99 * (100 if state.rate > 300e6 else 1)
        state = after_window(state, window(p99))
        rates.append(state.rate)
    assert all(rate <= 300e6 + STEP for rate in rates)


@given(
    bearable=st.floats(min_value=2 * STEP, max_value=CEILING - STEP),
    begins_unlimited=st.booleans(),
    is_first_pass=st.booleans(),
)
def test_a_pass_is_soon_at_half_of_what_the_disk_bears_and_stays_there(
    bearable: float, begins_unlimited: bool, is_first_pass: bool
) -> None:
    """The disk makes produces slow beside a cleaner that is faster than it bears."""

    def window_at(rate: float) -> LatencyWindow:
        p99 = QUIET_P99 * (1.2 if rate <= bearable else 10)
        return window(p99, cleaner_bytes=int(min(rate, 4 * CEILING)))

    def one_pass(state: GuardState) -> tuple[GuardState, list[float]]:
        rates = []
        for _ in range(60):
            state = after_window(state, window_at(state.rate))
            rates.append(state.rate)
        return state, rates

    state = at(math.inf if begins_unlimited else START)
    if not is_first_pass:
        state = after(one_pass(state)[0], quiet())
    _, rates = one_pass(state)
    assert all(bearable / 2 <= rate <= bearable + STEP for rate in rates[7:])
    assert max(rates) <= max(2 * bearable, START)
