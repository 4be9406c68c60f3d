"""The contract of a state machine: `apply`, `snapshot`, `restore`, `digest`.

    entries 1..7  ->  apply  ->  the state at 8  ->  snapshot  ->  rows
                                                     restore   <-  rows

Two copies of a machine that applied the same entries have the same rows and the same digest, whatever
snapshots they were restored from on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

Row = tuple[bytes, bytes]
"""A key and its value. A key occurs once in a state."""


class StateMachine(Protocol):
    """A state that changes only by the commands of a log, in their order."""

    def apply(self, index: int, command: bytes) -> None:
        """Apply the command of the entry at `index`."""

    def snapshot(self) -> Iterator[Row]:
        """Returns the rows of the state as it is now, in the order of their keys.

        The call copies at most references, so it is short; the rows are encoded while the iterator
        runs, which may be in another thread while the machine applies further commands.
        """

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the whole state by that of a snapshot. The caller has verified the rows' checksums.

        Raises:
            ValueError, struct.error: they are no rows of such a machine.
        """

    def digest(self) -> int:
        """Returns the `set_digest` of the rows of the state as it is now.

        After a replay the time may grow with what it has changed, not with the state.
        """

    def size_bytes(self) -> int | None:
        """Returns about how many bytes a snapshot would take now; None if that is not known."""
