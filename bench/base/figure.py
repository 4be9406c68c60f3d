"""A figure: a measured value, the machine's limit measured beside it, and their ratio.

What cannot be measured on this machine or beside this peer is skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import comb
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The medians of interleaved pairs of measurements."""

    name: str
    unit: str
    measured: float
    limit: float
    limit_is: str
    """A description of the probe that measured the machine's limit."""
    ratio: float
    """The median of the pairs' own ratios, measured / limit."""
    ratio_from: float
    """With a probability of 95 %, the ratio is at least this; with few pairs, the smallest of them."""
    ratio_to: float
    """The same for the other side."""
    pairs: int
    note: str = ""

    def as_json(self) -> dict[str, str | float | int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A figure that was not taken."""

    name: str
    reason: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def interleaved(
    name: str,
    unit: str,
    measure: Callable[[], float],
    probe: Callable[[], float],
    *,
    limit_is: str,
    pairs: int,
    note: str = "",
) -> Figure:
    """Measure and probe in turn, because this kind of machine changes its speed by the minute."""
    taken = [(measure(), probe()) for _ in range(pairs)]
    return of_pairs(name, unit, taken, limit_is=limit_is, note=note)


def of_pairs(
    name: str, unit: str, taken: Sequence[tuple[float, float]], *, limit_is: str, note: str = ""
) -> Figure:
    """Returns the figure for several pairs of a measured value and its limit."""
    ratios = sorted(measured / limit for measured, limit in taken)
    rank = bound_rank(len(ratios))
    return Figure(
        name=name,
        unit=unit,
        measured=median(measured for measured, _ in taken),
        limit=median(limit for _, limit in taken),
        limit_is=limit_is,
        ratio=median(ratios),
        ratio_from=ratios[rank],
        ratio_to=ratios[-1 - rank],
        pairs=len(taken),
        note=note,
    )


def bound_rank(count: int) -> int:
    """Returns how many of so many sorted values lie below the lower 95 % bound of their median.

    That many or fewer of them are below the median with a probability of at most 5 %.
    """
    rank, likelihood = 0, 1.0
    while rank < count and (likelihood := likelihood + comb(count, rank + 1)) <= 0.05 * 2**count:
        rank += 1
    return rank
