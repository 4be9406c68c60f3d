"""The time of a group without a broker."""

from __future__ import annotations

from typing import Protocol

from server.coordination.groups.outcome import Outcome


class Expires(Protocol):
    """A group of any protocol."""

    def expire(self, now_ms: int) -> Outcome: ...


class TimedWorld(Protocol):
    """A group with its clock."""

    now_ms: int
    deadline_ms: int | None

    @property
    def group(self) -> Expires: ...

    def owed(self, outcome: Outcome) -> None: ...


def pass_time(world: TimedWorld, duration_ms: int) -> None:
    """Let time pass; call the group only at the deadlines that it asked for."""
    end_ms = world.now_ms + duration_ms
    steps = 0
    while world.deadline_ms is not None and world.deadline_ms <= end_ms:
        world.now_ms = max(world.now_ms, world.deadline_ms)
        world.owed(world.group.expire(world.now_ms))
        steps += 1
        assert steps < 1_000, "time stands still"
    world.now_ms = end_ms
