"""Our log and our cleaner, with the verbs that `tests/harness/kafka_cleaner.py` gives Kafka's."""

from __future__ import annotations

from cleaner.pacing.settings import MAP_ENTRY_BYTES, CleanerSettings
from cleaner.rules.pick import Reason
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import CompactedLog
from tests.harness.log_builder import run_of
from tests.harness.sidecar_mode import SidecarMode


class KompaktLog:
    """A new, empty log in memory."""

    def __init__(
        self,
        config: LogConfig,
        *,
        map_keys: int,
        now_ms: int,
        sidecars: SidecarMode = SidecarMode.KEPT,
    ) -> None:
        settings = CleanerSettings(dedupe_buffer_size=map_keys * MAP_ENTRY_BYTES)
        self._home = CompactedLog(config, settings, sidecars=sidecars)
        self._home.now_ms = now_ms

    @property
    def clean_offset(self) -> int:
        return self._home.log.clean_offset

    def append(self, batch: bytes) -> None:
        self._home.log.appender.append_as_follower(
            run_of(bytearray(batch)), now_ms=self._home.now_ms
        )
        self._home.make_durable()

    def roll(self) -> None:
        self._home.roll()

    def set_clock(self, now_ms: int) -> None:
        self._home.now_ms = now_ms

    def expire_producers(self) -> None:
        self._home.log.roll_if_due(self._home.now_ms)

    def reopen(self) -> None:
        self._home.reopen(is_clean=True)

    def clean(self, passes_max: int) -> int:
        """Passes until none is due, or an undecided transaction stops them; how many."""
        for passes in range(passes_max):
            reason, clean_offset = self._home.assess().reason, self.clean_offset
            if reason is None:
                return passes
            self._home.execute(self._home.plan(requested=False))
            if reason is Reason.DIRTY and self.clean_offset == clean_offset:
                return passes + 1
        return passes_max

    def batches(self) -> bytes:
        """All that the segments hold, back to back."""
        return b"".join(
            segment.files.open().read_at(0, segment.size) for segment in self._home.log.segments
        )
