"""How far the mirrors of a standby are, as people see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleaner.rules.text import count_text

LAG_OFFSETS_MAX = 10_000
"""A standby with fewer missing offsets is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorsFacts:
    """How far the mirrors of all topics are."""

    partitions: int
    by_state: Mapping[str, int]
    lag: int
    """The offsets that the source had at its last answers and that are not here."""
    reason: str
    """Why the source cannot be asked; empty if it answers."""
    unmirrored: Sequence[str] = ()
    """A sentence for each topic of the source that has no mirror here."""

    @property
    def not_ready(self) -> str | None:
        """Why the mirrors do not have what the source had a moment ago; None if they have."""
        if self.reason:
            return self.reason
        if self.unmirrored:
            return self.unmirrored[0]
        others = {state: count for state, count in self.by_state.items() if state != "copying"}
        if others:
            return ", ".join(f"{count} {state}" for state, count in sorted(others.items()))
        return f"{count_text(self.lag, 'offset')} behind" if self.lag > LAG_OFFSETS_MAX else None


STARTING = MirrorsFacts(partitions=0, by_state={}, lag=0, reason="its broker is starting")
"""Before the broker of the standby has started."""
