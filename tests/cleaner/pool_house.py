"""A pool over logs on the real disk, for the tests of the pool."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from cleaner.pacing.paused import Paused
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.quarantine import Quarantined
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import IoRates
from cleaner.pool.pool import CleanerPool
from cleaner.rules.look import Look
from cleaner.rules.report import PassReport
from storage.files.local_files import LocalFileSystem
from storage.files.paths import LOG
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.opening import create_log
from tests.harness.compacted_log import CONFIG, START_MS, identity, opening, records_of
from tests.harness.log_builder import KeyValue, batch_of, valid

SETTINGS = CleanerSettings(
    backoff_ms=10, dedupe_buffer_size=24 * 10_000, retry_backoff_ms=50, retry_backoff_max_ms=50
)
SLOW = replace(SETTINGS, io_rates=IoRates(total=1.0))
"""The first chunk of a pass takes minutes."""
PATIENCE_SECONDS = 20.0
HOUR_MS = 3_600_000
RESTS_LONG = replace(SETTINGS, retry_backoff_ms=HOUR_MS, retry_backoff_max_ms=HOUR_MS)
"""Failed partitions are not tried again."""
CLEANED = [(1, b"b"), (2, b"a")]
"""What a pass leaves of `House.dirty_log`."""


class WallClock:
    """Wall time that the test sets, and real monotonic time."""

    def __init__(self) -> None:
        self.wall_ms = START_MS

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return time.monotonic()


class Recorder(SilentProbe):
    """A probe that records all events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.looks = 0

    def picked(self, look: Look) -> None:
        self.looks += 1

    def pass_completed(self, report: PassReport) -> None:
        self.events.append(f"completed {report.topic}")

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        self.events.append(f"aborted {topic}")

    def pass_failed(self, topic: str, partition: int, reason: str) -> None:
        self.events.append(f"failed {topic}")

    def quarantined(self, entry: Quarantined) -> None:
        self.events.append(f"quarantined {entry.topic_partition.topic} {entry.kind}")

    def released(self, topic: str, partition: int) -> None:
        self.events.append(f"released {topic}")

    def stalled(self, topic: str, partition: int, seconds: float, phase: str) -> None:
        self.events.append(f"stalled {topic}")

    def worker_failed(self, reason: str) -> None:
        self.events.append(f"worker failed {reason}")


class House:
    """Logs on the real disk, and the pool's dependencies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock: WallClock = WallClock()
        self.probe = Recorder()
        self.logs: list[PartitionLog] = []

    def log(self, topic: str = "orders", config: LogConfig = CONFIG) -> PartitionLog:
        log = create_log(
            LocalFileSystem(),
            replace(
                identity(topic, str(self.path / topic / "0")),
                topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, topic),
            ),
            config,
            opening(now_ms=self.clock.now_ms()),
        )
        self.logs.append(log)
        return log

    def append(self, log: PartitionLog, *pairs: KeyValue) -> None:
        appended = log.appender.append_as_leader(valid(batch_of(pairs)), now_ms=self.clock.now_ms())
        assert isinstance(appended, Appended)
        log.advance_high_watermark(log.sync())

    def dirty_log(self, topic: str = "orders", config: LogConfig = CONFIG) -> PartitionLog:
        """Returns a log with a sealed segment in which one of three records is superseded."""
        log = self.log(topic, config)
        self.append(log, (b"a", b"1"))
        self.append(log, (b"b", b"1"))
        self.append(log, (b"a", b"2"))
        log.roll(self.clock.now_ms())
        return log

    def pool(
        self,
        settings: CleanerSettings = SETTINGS,
        logs: Callable[[], Iterable[PartitionLog]] | None = None,
    ) -> CleanerPool:
        return CleanerPool(
            logs or (lambda: self.logs), settings, clock=self.clock, probe=self.probe
        )


@asynccontextmanager
async def running(pool: CleanerPool) -> AsyncIterator[CleanerPool]:
    pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - files and threads set no event
            await asyncio.sleep(0.005)


def staged_files(log: PartitionLog) -> list[str]:
    return [path.name for path in Path(log.directory).iterdir() if path.suffix == ".cleaned"]


def keys_of(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.key) for record in records_of(log)]


def flip_a_byte(log: PartitionLog, *, segment: int = 0) -> None:
    """Damage a sealed segment, by default the first one; a second flip repairs it."""
    path = Path(log.segments[segment].path(LOG))
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes([data[64] ^ 0xFF]) + data[65:])


def paused_of(log: PartitionLog) -> Paused:
    return Paused(partitions=frozenset({(log.topic_id, log.topic_partition.partition)}))
