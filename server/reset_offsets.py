"""Where a group's offsets are set to. Pure.

Source: Apache Kafka, ConsumerGroupCommand.java.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Aim(enum.Enum):
    """What somebody asked for."""

    EARLIEST = enum.auto()
    LATEST = enum.auto()
    CURRENT = enum.auto()
    """Where the group is, brought back into what the log holds."""
    OFFSET = enum.auto()
    MOMENT = enum.auto()
    """The first record from then on; the end if none is that late."""
    SHIFT = enum.auto()
    """So many offsets on, or back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An aim with its number: an offset, ms after 1970, or how many offsets."""

    aim: Aim
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What becomes of one partition's offset."""

    topic: str
    partition: int
    committed: int | None
    offset: int
    """The new one; always within what the log holds."""

    @property
    def is_change(self) -> bool:
        return self.offset != self.committed


def new_offset(
    goal: Goal, *, committed: int | None, start: int, end: int, at_moment: int | None
) -> int:
    """The offset to commit for a partition that holds [start, end).

    A group without a committed offset counts as being at the start.

    Args:
        at_moment: for Aim.MOMENT, the first offset from then on; -1 if there is none.
    """
    current = start if committed is None else committed
    return min(max(_wanted(goal, current, start, end, at_moment), start), end)


def _wanted(goal: Goal, current: int, start: int, end: int, at_moment: int | None) -> int:
    match goal.aim:
        case Aim.EARLIEST:
            return start
        case Aim.LATEST:
            return end
        case Aim.CURRENT:
            return current
        case Aim.OFFSET:
            return goal.number
        case Aim.SHIFT:
            return current + goal.number
        case Aim.MOMENT:
            assert at_moment is not None
            return end if at_moment < 0 else at_moment


def parse_parts(text: str) -> tuple[str, tuple[int, ...] | None]:
    """TOPIC, or TOPIC:0,2 for some of its partitions. Raises ValueError."""
    topic, colon, numbers = text.partition(":")
    if not topic:
        raise ValueError(text)
    return topic, tuple(int(number) for number in numbers.split(",")) if colon else None
