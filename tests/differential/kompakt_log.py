"""Our log and our cleaner, with the verbs that `tests/harness/kafka_cleaner.py` gives Kafka's."""

from __future__ import annotations

from cleaner.settings import MAP_ENTRY_BYTES, CleanerSettings
from storage.log_config import LogConfig
from tests.harness.compacted_log import CompactedLog
from tests.harness.log_builder import valid


class KompaktLog:
    """A new, empty log in memory."""

    def __init__(self, config: LogConfig, *, map_keys: int, now_ms: int) -> None:
        settings = CleanerSettings(dedupe_buffer_size=map_keys * MAP_ENTRY_BYTES)
        self._home = CompactedLog(config, settings)
        self._home.now_ms = now_ms

    @property
    def tail_offset(self) -> int:
        """The last offset that a pass may touch now."""
        return self._home.assess().bounds.first_uncleanable_offset - 1

    @property
    def clean_offset(self) -> int:
        return self._home.log.clean_offset

    def append(self, batch: bytes) -> None:
        self._home.log.append_as_follower(valid(bytearray(batch)), now_ms=self._home.now_ms)
        self._home.make_durable()

    def roll(self) -> None:
        self._home.roll()

    def set_clock(self, now_ms: int) -> None:
        self._home.now_ms = now_ms

    def expire_producers(self) -> None:
        self._home.log.roll_if_due(self._home.now_ms)

    def reopen(self) -> None:
        self._home.reopen(is_clean=True)

    def clean_until_idle(self, passes_max: int) -> int:
        """How many passes that took."""
        return self._home.clean_until_idle(passes_max)

    def batches(self) -> bytes:
        """All that the segments hold, back to back."""
        return b"".join(
            segment.files.open().read_at(0, segment.size) for segment in self._home.log.segments
        )
