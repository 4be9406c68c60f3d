from __future__ import annotations

from server.runtime.clock import SteadyClock


class SetClock:
    """A clock that an administrator sets."""

    def __init__(self) -> None:
        self.wall_ms, self.seconds = 1_000_000, 50.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds


def test_setting_the_system_clock_does_not_move_the_steady_clock() -> None:
    clock = SetClock()
    steady = SteadyClock(clock)
    assert steady.now_ms() == 1_000_000

    clock.wall_ms = 5
    clock.seconds += 2.5
    assert steady.now_ms() == 1_002_500
