"""When values of a compacted topic expire: `compaction.ttl.ms` and `compaction.ttl.header`, as code uses
them.

`cleaner/rules/expiry.py` has the rule; docs/design/ttl.md says why it is this one.
"""

from __future__ import annotations

from dataclasses import dataclass

TTL = "compaction.ttl.ms"
TTL_HEADER = "compaction.ttl.header"
TTL_PROPERTIES = TTL, TTL_HEADER
"""The properties of a topic that say when its values expire."""

NO_TTL = -1
"""The value of `compaction.ttl.ms` with which values do not expire."""


@dataclass(frozen=True, slots=True)
class CompactionTtl:
    """When values expire, counted from their timestamps."""

    topic_ms: int = NO_TTL
    """The time of all values whose record sets none; NO_TTL: they never expire."""
    header: str = ""
    """The header in which a record sets its own time; empty: none does."""

    @property
    def is_set(self) -> bool:
        """Whether any value may expire."""
        return self.topic_ms != NO_TTL or self.header != ""
