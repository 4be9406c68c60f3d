"""A random history of a compacted log that spares segments, and a model of what must be left.

`min.segment.dead.ratio` and `max.compaction.lag.ms` change at any time, besides all that `KeptHistory`
plays. After every step it also checks the log:

    below the clean offset nothing of a key comes before one of its tombstones
    after passes have run until none is due, nothing is left below the clean offset that was superseded
    longer ago than the greatest lag
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from tests.harness.kept_history import KeptHistory
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.versioned_history import Sent

RATIOS = [0.0, 0.2, 0.5, 0.5, 1.0]
LAGS_MS = [LONG_MAX, 2_000, 20_000]


class SparedHistory(KeptHistory):
    """One history. `play` takes steps and checks the log after each."""

    tombstone_share = 0.08

    def __init__(
        self, seed: int, *, map_slots: int = 1000, sidecars: SidecarMode = SidecarMode.KEPT
    ) -> None:
        self.ratio, self.lag_ms, self.most_spared = 0.5, LONG_MAX, 0
        super().__init__(seed, map_slots=map_slots, sidecars=sidecars)

    def config(self) -> LogConfig:
        return replace(
            super().config(),
            segment_bytes=self.random.choice([1, 600, 1500]),
            min_segment_dead_ratio=self.ratio,
            max_compaction_lag_ms=self.lag_ms,
        )

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().choices(), (self.change_ratio, 5), (self.wait_for_deadlines, 5)]

    def change_ratio(self) -> None:
        """Change what is spared, but not which older values stay."""
        if not self.strategy.has_versions:
            self.ratio = self.random.choice(RATIOS)
        self.lag_ms = self.random.choice(LAGS_MS)
        self.log.log.update_config(self.config())

    def change_settings(self) -> None:
        super().change_settings()
        if self.random.random() < 0.6:
            self.versions, self.thinning = 1, ""
            self.log.log.update_config(self.config())

    def wait_for_deadlines(self) -> None:
        """Let the greatest lag pass after a pass that has left nothing dirty."""
        self.log.roll()
        self.clean()
        self.log.now_ms += 25_000
        self.clean_all_that_is_due()

    def change_strategy(self) -> None:
        self.ratio = 0.0
        super().change_strategy()

    def clean_all_that_is_due(self) -> None:
        if not self.log.log.config.spares_segments:
            super().clean_all_that_is_due()
            return
        self.log.roll()
        self.clean_as_picked()
        clean_offset = self.log.log.clean_offset
        for key, sent in self.present().items():
            clean = [each for each in sent if each.offset < clean_offset]
            # Values that a history keeps may be left for as long as it says.
            spared = [] if self._keeps_more() else self._superseded(clean)
            for record, by in spared:
                age_ms = self.log.now_ms - by.appended_ms
                assert age_ms < self.lag_ms, f"{key!r}: {record} was to go: {by} superseded it"

    def _keeps_more(self) -> bool:
        return self.log.log.config.history.keeps_more

    def _superseded(self, sent: list[Sent]) -> list[tuple[Sent, Sent]]:
        """Returns the records that another one follows, each with the last one."""
        return [(each, sent[-1]) for each in sent[:-1]]

    def check(self) -> None:
        super().check()
        if self.strategy.has_versions:
            return
        clean_offset = self.log.log.clean_offset
        for key, sent in self.present().items():
            clean = [each for each in sent if each.offset < clean_offset]
            ended = max((each.offset for each in clean if each.is_tombstone), default=-1)
            if not self._keeps_more():
                self.most_spared = max(self.most_spared, len(clean) - 1)
            older = [each for each in clean if each.offset < ended]
            assert not older, f"{key!r}: {older} are before the tombstone at {ended}"
