"""Computes the new offsets for `kompakt groups reset-offsets`. Pure.

Source: Apache Kafka, ConsumerGroupCommand.java.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Aim(enum.Enum):
    """The kind of offset to reset to."""

    EARLIEST = enum.auto()
    LATEST = enum.auto()
    CURRENT = enum.auto()
    """The group's current offset, moved into the range that the log holds."""
    OFFSET = enum.auto()
    MOMENT = enum.auto()
    """The first record at or after a time, or the end if no record is that late."""
    SHIFT = enum.auto()
    """A number of offsets forward, or back if negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An aim with its number: an offset, a time in ms since 1970, or a number of offsets."""

    aim: Aim
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The old and new offset of one partition."""

    topic: str
    partition: int
    committed: int | None
    offset: int
    """The new offset, always within the range that the log holds."""

    @property
    def is_change(self) -> bool:
        return self.offset != self.committed


def new_offset(
    goal: Goal, *, committed: int | None, start: int, end: int, at_moment: int | None
) -> int:
    """Returns the offset to commit for a partition that holds [start, end).

    A group without a committed offset is treated as being at the start.

    Args:
        at_moment: for Aim.MOMENT, the first offset at or after the time; -1 if there is none.
    """
    current = start if committed is None else committed
    return min(max(_unclamped(goal, current, start, end, at_moment), start), end)


def _unclamped(goal: Goal, current: int, start: int, end: int, at_moment: int | None) -> int:
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
    """Parse TOPIC, or TOPIC:0,2 for some of its partitions. Raises ValueError."""
    topic, colon, numbers = text.partition(":")
    if not topic:
        raise ValueError(text)
    return topic, tuple(int(number) for number in numbers.split(",")) if colon else None
