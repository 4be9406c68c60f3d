"""The contract of a merger: the row changes of a machine's commands, without a second machine.

    last snapshot, sorted rows   a=1  b=2        d=4
    commands after it            put c=3, put b=5, delete d
    next snapshot                a=1  b=5  c=3

A merger holds what the commands since the last snapshot have changed, and nothing else of the state.
The paper's second state machine would hold all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Protocol

from replog.machine import Row

Lookup = Callable[[bytes], bytes | None]
"""Returns the value of a key in the last snapshot; None if it has no such row."""


class Merger(Protocol):
    """The changes of a run of commands, which follow each other and begin where a snapshot ends."""

    def add(self, index: int, command: bytes) -> None:
        """Take the next command, of the entry at `index`."""

    def keys(self) -> Iterable[bytes]:
        """Returns the keys of all rows that the snapshot may lack, in any order, each once."""

    def value_after(self, key: bytes, before: bytes | None) -> bytes | None:
        """Returns the value that a row has after all commands; None if it has gone.

        Called after the last `add`, for each row of the snapshot and for each of `keys`, in their order.

        Args:
            before: the row's value in the snapshot; None if it has no such row.
        """


NewMerger = Callable[[Lookup], Merger]
"""Returns a merger that has no command yet; it may look up rows of the snapshot at any time."""


def merged(base: Iterable[Row], merger: Merger) -> Iterator[Row]:
    """Yields the rows after all commands, in the order of their keys.

    Args:
        base: the rows of the last snapshot, in the order of their keys.
    """
    added = iter(sorted(merger.keys()))
    following = next(added, None)
    for key, before in base:
        while following is not None and following < key:
            yield from _row(following, merger.value_after(following, None))
            following = next(added, None)
        if following == key:
            following = next(added, None)
        after = merger.value_after(key, before)
        if after is not None:
            yield key, after
    while following is not None:
        yield from _row(following, merger.value_after(following, None))
        following = next(added, None)


def _row(key: bytes, value: bytes | None) -> Iterator[Row]:
    if value is not None:
        yield key, value


def named_merger(name: str) -> NewMerger:
    """Returns the merger with a name of the form `package.module:Class`."""
    module, _, attribute = name.partition(":")
    found: NewMerger = getattr(import_module(module), attribute)
    return found
