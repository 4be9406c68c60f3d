"""Counts the requests that take the second path, or switches that path off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from server.shortcut.plain import PlainRequests


@dataclass
class Counts:
    """How many requests the second path has taken, and left to the ordinary one."""

    taken: int = 0
    left: int = 0


def counted(patch: pytest.MonkeyPatch) -> Counts:
    """Count from now on."""
    run, counts = PlainRequests.run, Counts()

    def counting(self: PlainRequests, *arguments: Any) -> Any:
        done = run(self, *arguments)
        if done is None:
            counts.left += 1
        else:
            counts.taken += 1
        return done

    patch.setattr(PlainRequests, "run", counting)
    return counts


def switch_off(patch: pytest.MonkeyPatch) -> None:
    """Let every request take the ordinary path."""
    patch.setattr(PlainRequests, "run", lambda *_: None)
