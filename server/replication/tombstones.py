"""Whether a source may have removed tombstones that a mirror has not copied yet. Pure.

A source without holds (Apache Kafka) keeps a tombstone for `delete.retention.ms` after the first pass
that has removed the key's older values. So what a mirror lacks is complete as long as it is not older
than that:

    safe_ms      a time at which the source's log ended at or below the mirror's end, or at which the
    mirror
                 was empty: every tombstone that it lacks was written later, or its older values are not
                 here
    samples      (time, source's end), from which safe_ms advances as the mirror copies

Source: founding document 002; in a simulation of 4,000 lagging mirrors, a rule by time alone let 53
diverge.
"""

from __future__ import annotations

from collections import deque

SAMPLE_EVERY_MS = 10_000
SAMPLES_MAX = 1_000
"""With more, every second one is forgotten: `safe_ms` then advances in larger steps."""
MARGIN_SHARE, MARGIN_MS_MAX = 0.1, 60_000
"""Kept of the time, because the clocks of both machines may differ."""


class TombstoneWatch:
    """The samples of one mirror."""

    __slots__ = ("_samples", "safe_ms")

    def __init__(self, safe_ms: int | None) -> None:
        """
        Args:
            safe_ms: as the slot at the source remembers it; None if it does not.
        """
        self.safe_ms = safe_ms
        self._samples: deque[tuple[int, int]] = deque()

    def note(self, now_ms: int, *, source_end: int, end: int, is_empty: bool) -> None:
        """Note an answer of the source: where its log ends, and the mirror's before the answer is
        appended."""
        if is_empty or source_end <= end:
            self.safe_ms = now_ms
            self._samples.clear()
            return
        while self._samples and self._samples[0][1] <= end:
            self.safe_ms, _ = self._samples.popleft()
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_EVERY_MS:
            self._samples.append((now_ms, source_end))
            if len(self._samples) > SAMPLES_MAX:
                self._samples = deque(list(self._samples)[::2])

    def forget(self) -> None:
        """Forget since when nothing is missing: the source no longer holds what the mirror lacks."""
        self.safe_ms = None
        self._samples.clear()

    def missed(self, now_ms: int, delete_retention_ms: int) -> str:
        """Returns why tombstones may be missing, as a sentence; empty if none can be."""
        advice = "kompakt replica resync copies it once more"
        if self.safe_ms is None:
            return (
                "it is not known since when the mirror lags, so the source may have removed tombstones:"
                f" {advice}"
            )
        margin_ms = min(int(MARGIN_SHARE * delete_retention_ms), MARGIN_MS_MAX)
        lag_ms = now_ms - self.safe_ms
        if lag_ms <= delete_retention_ms - margin_ms:
            return ""
        return (
            f"the mirror has lagged for {lag_ms // 1000} s, and the source keeps tombstones for"
            f" {delete_retention_ms // 1000} s (delete.retention.ms): {advice}"
        )
