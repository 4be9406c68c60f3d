"""How long a standby waits before it tries again: each time longer, up to a bound, with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_SECONDS, SECONDS_MAX = 0.2, 30.0
SPREAD = 0.5
"""A pause is shortened by up to this share, so that standbys of one leader do not return together."""


class Pauses:
    """The pauses of one standby."""

    __slots__ = ("_next_s", "_random")

    def __init__(self, random_share: Callable[[], float] = random.random) -> None:
        """
        Args:
            random_share: returns a number from 0 to 1.
        """
        self._random = random_share
        self._next_s = FIRST_SECONDS

    def next(self, at_least_s: float = 0.0) -> float:
        """Returns how long to wait now, in seconds; the next pause is twice as long."""
        wait_s = self._next_s * (1 - SPREAD * self._random())
        self._next_s = min(2 * self._next_s, SECONDS_MAX)
        return max(wait_s, min(at_least_s, SECONDS_MAX))

    def reset(self) -> None:
        """Begin with short pauses again: the leader has answered."""
        self._next_s = FIRST_SECONDS
