"""Counts the requests that take the second path, switches it off, and sends requests to compare."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from server.shortcut.plain import PlainRequests
from tests.harness.raw_client import RawClient


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


async def answers_to(
    frames: Iterable[bytes], client: RawClient, chooser: random.Random, sizes: Sequence[int]
) -> list[bytes]:
    """Send requests, each time a number of them that is chosen from `sizes`. Returns their answers."""
    left, found = list(frames), list[bytes]()
    while left:
        together = [left.pop(0) for _ in range(min(len(left), chooser.choice(sizes)))]
        client.send_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in together))
        found += [bytes(await client.receive_frame()) for _ in together]
    return found
