"""A random history of a compacted log that keeps older values, and a model of what must be left.

The model judges each pass by the rule (`cleaner/rules/history.py`), with the records that were there.
After every step it checks the log:

    no record has gone that the rule keeps, but tombstones after their horizon
    where a tombstone is gone, so is everything of its key before it
    after passes have run until none is due, exactly what the rule keeps is left below the clean offset

The settings change, also to a ranking by versions and back, besides all that `VersionedHistory` plays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cleaner.rules.history import PastRecord, stays_as_history
from protocol.records.record_batch import Record
from storage.formats.compaction_strategy import Ranking
from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.versioned_history import KEYS, Sent, VersionedHistory, strategy_by

THINNINGS = [
    "",
    "",
    "all for 2s, one per 2s for 8s, one per 4s for 16s",
    "one per 3s for 9s",
    "all for 5s",
]


class KeptHistory(VersionedHistory):
    """One history. `play` takes steps and checks the log after each."""

    def __init__(
        self, seed: int, *, map_slots: int = 1000, sidecars: SidecarMode = SidecarMode.KEPT
    ) -> None:
        self.versions, self.thinning = 2, ""
        super().__init__(seed, Ranking.OFFSET, map_slots=map_slots)
        self.log.sidecars = sidecars
        self.change_settings()

    def config(self) -> LogConfig:
        return replace(
            super().config(),
            compaction_versions=self.versions,
            compaction_thinning=self.thinning,
        )

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [
            *super().choices(),
            (self.change_settings, 3),
            (self.wait_long, 5),
            (self.clean_all_that_is_due, 8),
        ]

    def wait_long(self) -> None:
        self.log.now_ms += self.random.randint(1000, 12_000)

    def change_settings(self) -> None:
        """Change which older values stay. What is gone stays so."""
        self.versions = self.random.choice([1, 1, 2, 3])
        self.thinning = self.random.choice(THINNINGS)
        self.strategy = strategy_by(Ranking.OFFSET)
        self.log.log.update_config(self.config())
        self._forget_what_is_gone()

    def change_strategy(self) -> None:
        """Keep only the last value by its version for a while."""
        self.versions, self.thinning = 1, ""
        super().change_strategy()

    def _record(self, key: bytes, is_tombstone: bool) -> tuple[Record, int]:
        record, version = super()._record(key, is_tombstone)
        late_ms = self.random.choice([0, 0, self.random.randint(-3000, 20_000)])
        return replace(record, timestamp=self.log.now_ms - late_ms), version

    # ---------------------------------------------------------------- passes, judged

    def clean(self) -> None:
        before = self.kept()
        super().clean()
        self.check_kept(before)

    def clean_as_picked(self) -> None:
        before = self.kept()
        super().clean_as_picked()
        self.check_kept(before)

    def crash_in_a_pass(self) -> None:
        before = self.kept()
        super().crash_in_a_pass()
        self.check_kept(before)

    def clean_all_that_is_due(self) -> None:
        """Nothing is left below the clean offset that the rule does not keep."""
        self.log.roll()
        self.clean_as_picked()
        if self.strategy.has_versions:
            return
        clean_offset = self.log.log.clean_offset
        for key, sent in self.present().items():
            clean = [each for each in sent if each.offset < clean_offset]
            left = {each.offset for each in clean}
            expected = {each.offset for each in clean if self.stays(each, clean)}
            assert left == expected, f"{key!r}: {left - expected} should be gone: {clean}"

    def kept(self) -> dict[bytes, list[Sent]]:
        """Returns the records that a pass must keep now."""
        return {
            key: [each for each in sent if self.stays(each, sent)]
            for key, sent in self.present().items()
        }

    def check_kept(self, before: dict[bytes, list[Sent]]) -> None:
        """Check that a pass has dropped nothing else, but tombstones after their horizon."""
        if self.strategy.has_versions:
            return
        now = self.present()
        for key, sent in before.items():
            gone = [each for each in sent if each not in now.get(key, [])]
            early = [
                each
                for each in gone
                if not each.is_tombstone
                or self.horizons.get(each.offset, LONG_MAX) > self.log.now_ms
            ]
            assert not early, f"{key!r}: {early} went, of {sent}; {now.get(key)} is left"

    def stays(self, record: Sent, sent: list[Sent]) -> bool:
        return stays_as_history(
            past(record), map(past, sent), self.log.log.config.history, self.log.now_ms
        )

    def present(self) -> dict[bytes, list[Sent]]:
        """Returns the records in the log that count, by key."""
        offsets = {record.offset for record in self.log.records()}
        return {
            key: [each for each in sent if each.offset in offsets]
            for key, sent in self.sent.items()
        }

    # ---------------------------------------------------------------- checking

    def check(self) -> None:
        if self.strategy.has_versions:
            return super().check()
        left = {record.offset for record in self.log.records() if record.key in KEYS}
        for key, sent in [*self.sent.items()]:
            self._check_deletions(key, [each for each in sent if each.offset in left], sent)
        assert self.log.log.has_history or not self._has_several(left)
        self._note_horizons()
        return None

    def _check_clean_section(self, left: dict[bytes, set[int]]) -> None:
        # After older values have stayed, the next pass judges all keys.
        if not self.log.log.has_history:
            super()._check_clean_section(left)

    def _check_deletions(self, key: bytes, left: list[Sent], sent: list[Sent]) -> None:
        offsets = {each.offset for each in left}
        ended = max(
            (each.offset for each in sent if each.is_tombstone and each.offset not in offsets),
            default=-1,
        )
        older = [each for each in left if each.offset < ended]
        assert not older, f"{key!r}: {older} came back when the tombstone at {ended} went"

    def _has_several(self, left: set[int]) -> bool:
        clean_offset = self.log.log.clean_offset
        return any(
            sum(each.offset in left and each.offset < clean_offset for each in sent) > 1
            for sent in self.sent.values()
        )


def past(record: Sent) -> PastRecord:
    return PastRecord(record.offset, record.timestamp, record.is_tombstone)
