"""How long a follower waits before it tries again: each time twice as long, up to a bound, with
jitter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """The pauses of one kind of follower, in seconds."""

    first_s: float
    max_s: float
    least_share: float
    """A pause is multiplied by a random number from this one to `most_share`, so that the followers of
    one leader do not return together."""
    most_share: float


STANDBY = Pacing(first_s=0.2, max_s=30.0, least_share=0.5, most_share=1.0)
MIRROR = Pacing(first_s=1.0, max_s=300.0, least_share=0.8, most_share=1.2)


class Pauses:
    """The pauses of one follower."""

    __slots__ = ("_next_s", "_pacing", "_random")

    def __init__(self, pacing: Pacing, random_share: Callable[[], float] = random.random) -> None:
        """
        Args:
            random_share: returns a number from 0 to 1.
        """
        self._pacing = pacing
        self._random = random_share
        self._next_s = pacing.first_s

    def next(self, at_least_s: float = 0.0) -> float:
        """Returns how long to wait now, in seconds; the next pause is twice as long."""
        pacing = self._pacing
        share = pacing.least_share + (pacing.most_share - pacing.least_share) * self._random()
        wait_s = self._next_s * share
        self._next_s = min(2 * self._next_s, pacing.max_s)
        return max(wait_s, min(at_least_s, pacing.max_s))

    def reset(self) -> None:
        """Begin with short pauses again: the leader has answered."""
        self._next_s = self._pacing.first_s
