"""The state of one partition's part of a job that an operator has started.

waiting -> running -> done
                   -> failed      with a sentence
                   -> stopped     an operator or a shutdown stopped it
"""

from __future__ import annotations

import enum


class PartState(enum.StrEnum):
    """The state of one part of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_end(self) -> bool:
        """Whether the part is over."""
        return self not in (PartState.WAITING, PartState.RUNNING)
