"""Which older values of a key stay: `compaction.versions` and `compaction.thinning`, as code uses them.

    thinning := step{","}
    step     := ("all" | "one per" duration) "for" duration
    duration := whole number, then s | m | h | d | w | y (365 days)

    all for 1h, one per 1h for 1d, one per 1d for 1y

`cleaner/rules/history.py` has the rule; docs/design/history.md says why it is this one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

VERSIONS = "compaction.versions"
THINNING = "compaction.thinning"
HISTORY_PROPERTIES = VERSIONS, THINNING
"""The properties of a topic that say which older values stay."""

SECOND_MS = 1_000
UNITS_MS = {
    "s": SECOND_MS,
    "m": 60 * SECOND_MS,
    "h": 3_600 * SECOND_MS,
    "d": 86_400 * SECOND_MS,
    "w": 7 * 86_400 * SECOND_MS,
    "y": 365 * 86_400 * SECOND_MS,
}
DURATION_MS_MAX = 100 * UNITS_MS["y"]
STEPS_MAX = 16
CELLS_MAX = 100_000
"""So many periods may have a value of one key: a pass has them in memory."""

_STEP = re.compile(r"(?:(all)|one per (\d{1,18})([smhdwy])) for (\d{1,18})([smhdwy])")


@dataclass(frozen=True, slots=True)
class ThinningStep:
    """Of the values younger than `age_ms`, the last one of each period stays."""

    period_ms: int
    """0: all of them stay; only in the first step."""
    age_ms: int


@dataclass(frozen=True, slots=True)
class CompactionHistory:
    """Which values of a key stay beside its last one. A value stays if either rule keeps it."""

    versions: int = 1
    """So many of its last values stay."""
    steps: tuple[ThinningStep, ...] = ()
    """How its values are thinned as they grow older; empty: age keeps none. Ages rise, and each period
    is a multiple of the one before."""

    @property
    def keeps_more(self) -> bool:
        """Whether older values stay at all."""
        return self.versions > 1 or bool(self.steps)

    @property
    def cells_max(self) -> int:
        """An upper bound of the periods that can have a value of one key, by its thinning.

        A period of a step counts until the whole period of the next step is old enough.
        """
        ages = [0, *(step.age_ms for step in self.steps)]
        following = [*self.steps[1:], *self.steps[-1:]]
        return 1 + sum(
            (step.age_ms - from_ms + after.period_ms - step.period_ms) // step.period_ms + 2
            for from_ms, step, after in zip(ages, self.steps, following, strict=False)
            if step.period_ms
        )

    def __str__(self) -> str:
        """Returns it for people: `the last 3 values; all for 1h, one per 1d for 1y`."""
        last = "the last value" if self.versions == 1 else f"the last {self.versions} values"
        return "; ".join([last, *([thinning_text(self.steps)] if self.steps else [])])


LAST_VALUE = CompactionHistory()


@lru_cache(maxsize=1024)  # Each look at a log asks for its history.
def history_from(versions: int, thinning: str) -> CompactionHistory:
    """Returns the history of a topic with these settings. Raises as `parse_thinning`."""
    return CompactionHistory(versions, parse_thinning(thinning))


def parse_thinning(text: str) -> tuple[ThinningStep, ...]:
    """Parse the value of `compaction.thinning`.

    Raises:
        ValueError: it has another form, or its steps do not fit together; the message is one sentence.
    """
    parts = [" ".join(part.split()) for part in text.split(",")] if text.strip() else []
    if len(parts) > STEPS_MAX:
        raise ValueError(f"must have at most {STEPS_MAX} steps")
    steps = tuple(map(_parse_step, parts))
    _check_steps(steps)
    if (periods := CompactionHistory(steps=steps).cells_max) > CELLS_MAX:
        raise ValueError(f"has {periods} periods, more than {CELLS_MAX}: choose longer ones")
    return steps


def _parse_step(text: str) -> ThinningStep:
    match = _STEP.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:100]!r} is not a step like 'all for 1h' or 'one per 1h for 1d', with the units"
            f" {', '.join(UNITS_MS)}"
        )
    is_all, period, period_unit, age, age_unit = match.groups()
    period_ms = 0 if is_all else _duration_ms(period, period_unit)
    return ThinningStep(period_ms, _duration_ms(age, age_unit))


def _duration_ms(number: str, unit: str) -> int:
    duration_ms = int(number) * UNITS_MS[unit]
    if not 0 < duration_ms <= DURATION_MS_MAX:
        raise ValueError(f"{number}{unit} is not between 1s and 100y")
    return duration_ms


def _check_steps(steps: tuple[ThinningStep, ...]) -> None:
    """Raise ValueError unless a value that one step drops is dropped by all later ones."""
    before = ThinningStep(0, 0)
    for number, step in enumerate(steps):
        name = step_text(step)
        if not step.period_ms and number:
            raise ValueError(f"{name!r} must be the first step")
        if step.age_ms <= before.age_ms:
            raise ValueError(f"{name!r} must reach further back than the step before it")
        if step.period_ms > step.age_ms:
            raise ValueError(f"{name!r} has a period longer than its age")
        if before.period_ms and (
            step.period_ms <= before.period_ms or step.period_ms % before.period_ms
        ):
            raise ValueError(
                f"the period of {name!r} must be a multiple of the one before it,"
                f" {duration_text(before.period_ms)}"
            )
        before = step


def thinning_text(steps: tuple[ThinningStep, ...]) -> str:
    """Returns the text that `parse_thinning` reads as these steps."""
    return ", ".join(map(step_text, steps))


def step_text(step: ThinningStep) -> str:
    """Returns a step as it is written in `compaction.thinning`."""
    which = f"one per {duration_text(step.period_ms)}" if step.period_ms else "all"
    return f"{which} for {duration_text(step.age_ms)}"


def duration_text(duration_ms: int) -> str:
    """Returns whole seconds as `compaction.thinning` has them, in the largest unit that fits."""
    unit = next(unit for unit in reversed(UNITS_MS) if duration_ms % UNITS_MS[unit] == 0)
    return f"{duration_ms // UNITS_MS[unit]}{unit}"
