"""The report of an expiry sweep, for the log line, the metrics, the tests and the CLI."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner.rules.due_ranges import Ranges
from cleaner.rules.expiry import NEVER
from cleaner.rules.text import count_text, duration_text, size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryReport:
    """The outcome of one completed sweep over one partition."""

    topic: str
    partition: int
    end_offset: int
    """The last stable offset when the sweep was planned: values at or above it wait for the next one."""
    expired: int
    """Expired values that it has read, also those that have a later one."""
    tombstones: int
    """Tombstones that it has appended: of the keys whose last value had expired."""
    deferred: int
    """Expired values that the next sweep has to look at: what outranks them may go (an open transaction,
    an older tombstone with a higher version), or producers appended too fast."""
    unreadable: int
    """Values whose `compaction.ttl.header` was no time to live; the topic's own time holds for them."""
    bytes_read: int
    seconds: float
    throttled_seconds: float = 0.0
    ranges: Ranges = field(default=(), repr=False)
    """When what was read expires, by offsets."""

    @property
    def due_ms(self) -> int:
        """When the next value expires that a sweep has read; NEVER if there is none."""
        return min((each.least_ms for each in self.ranges), default=NEVER)

    def __str__(self) -> str:
        found = count_text(self.expired, "expired value")
        written = count_text(self.tombstones, "tombstone")
        parts = [
            f"{self.topic}-{self.partition}: found {found}, appended {written}",
            f"read {size_text(self.bytes_read)} in {duration_text(self.seconds)}",
        ]
        if self.deferred:
            parts.append(f"{self.deferred} left to the next sweep")
        if self.unreadable:
            parts.append(f"{count_text(self.unreadable, 'value')} with an unreadable time to live")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class ExpiryTotals:
    """What the sweeps of a log have done in this process."""

    sweeps: int = 0
    tombstones: int = 0
    unreadable: int = 0
    last: ExpiryReport | None = None

    def with_report(self, report: ExpiryReport) -> ExpiryTotals:
        """Returns the totals with one more sweep."""
        return ExpiryTotals(
            self.sweeps + 1,
            self.tombstones + report.tombstones,
            self.unreadable + report.unreadable,
            report,
        )


NOT_SWEPT = ExpiryTotals()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryFacts:
    """What is known of a log whose values expire."""

    due_ms: int
    """When the next sweep is due, in wall time; 0: now, NEVER: when something is appended."""
    totals: ExpiryTotals
