"""A figure: a measured value, the machine's limit measured beside it, and their ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
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
    pairs: int
    note: str = ""

    def as_json(self) -> dict[str, str | float | int]:
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
    return Figure(
        name=name,
        unit=unit,
        measured=median(measured for measured, _ in taken),
        limit=median(limit for _, limit in taken),
        limit_is=limit_is,
        ratio=median(measured / limit for measured, limit in taken),
        pairs=len(taken),
        note=note,
    )
