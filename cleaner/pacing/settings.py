"""The cleaner's settings; the server builds them from the `log.cleaner.*` properties."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner.pacing.throttle import IoRates
from storage.formats.content_digest import XXH3

CHUNK_BYTES_MIN = 1 << 20
"""The kernel gets at least this many bytes per call: with less, the calls cost more than the work."""

MAP_ENTRY_BYTES = 24
"""Size of a slot of the offset map: a 128-bit hash of the key and an offset."""

VERSION_BYTES = 8
"""What a slot takes in addition where records have versions."""

COUNT_BYTES = 8
"""What a slot takes in addition where older values may stay."""

MAP_SLOTS_MIN = 16
MAP_BYTES_MIN = MAP_SLOTS_MIN * MAP_ENTRY_BYTES
"""The minimum size of an offset map."""

MARKS_SHARE = 8
"""The marks take at most this fraction (1/8) of the map's memory"""

MARKS_BYTES_MIN = 1 << 16
"""but may always take this much: half a million records."""

LOAD_FACTOR_MAX = 0.95
"""In a fuller map, lookups become very slow; Kafka allows more."""

MAP_BYTES_MAX = (1 << 31) - 1
"""The maximum size of one worker's map, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """The cleaner's settings, with Kafka's defaults. Sizes are for the whole pool.

    Source: Apache Kafka, CleanerConfig.java.
    """

    threads: int = 1
    """log.cleaner.threads: passes that run at the same time."""
    dedupe_buffer_size: int = 134_217_728
    """log.cleaner.dedupe.buffer.size, bytes: the offset maps of all workers together."""
    io_buffer_size: int = 524_288
    """log.cleaner.io.buffer.size, bytes: the read buffers of all workers together; but each worker reads
    at least `CHUNK_BYTES_MIN` per chunk."""
    io_buffer_load_factor: float = 0.9
    """log.cleaner.io.buffer.load.factor: how full an offset map gets, despite its name."""
    io_rates: IoRates = field(default_factory=IoRates)
    """log.cleaner.io.max, .read and .write.bytes.per.second."""
    verify: bool = True
    """log.cleaner.verify.enable: whether a pass verifies its output before it swaps it in."""
    keeps_key_sidecars: bool = True
    """log.cleaner.key.sidecar.enable: whether key sidecars stay for the next pass."""
    backoff_ms: int = 15_000
    """log.cleaner.backoff.ms: how long a worker that found nothing to clean waits."""
    decompressed_bytes_max: int = 256 << 20
    """log.cleaner.decompressed.batch.bytes.max: the maximum size of one batch's records after
    decompression, and so of a worker's buffer for them; a larger batch makes the pass fail."""
    retry_backoff_ms: int = 30_000
    """How long a partition stays in quarantine after its first failed pass; doubles with each
    failure."""
    retry_backoff_max_ms: int = 3_600_000
    """The longest time that a partition stays in quarantine before a retry."""
    is_by_benefit: bool = False
    """log.cleaner.order: whether logs are served by the bytes freed per byte of I/O."""
    indexes_ahead: bool = False
    """log.cleaner.index.ahead.enable: whether key sidecars are made, and keys counted, before a pass."""
    ledger_digest: str = XXH3
    """log.cleaner.ledger.digest: how certificates digest the contents of segments."""
    stalled_ms: int = 300_000
    """log.cleaner.stalled.ms: a pass without progress for that long is reported with its stack."""
    thread_niceness: int = 19
    """Nice value of the worker threads: the event loop must not wait for them."""

    def __post_init__(self) -> None:
        assert self.threads >= 1
        assert 0 < self.io_buffer_load_factor <= 1

    @property
    def map_bytes(self) -> int:
        """Memory of one worker's offset map."""
        return max(min(self.dedupe_buffer_size // self.threads, MAP_BYTES_MAX), MAP_BYTES_MIN)

    @property
    def marks_bytes(self) -> int:
        """How much of the map's memory the marks of a pass may take."""
        return max(self.map_bytes // MARKS_SHARE, MARKS_BYTES_MIN)

    @property
    def map_load_factor(self) -> float:
        """The load factor that is really used."""
        return min(self.io_buffer_load_factor, LOAD_FACTOR_MAX)

    @property
    def chunk_bytes(self) -> int:
        """Bytes that a worker reads at a time; a larger batch enlarges its buffer."""
        return max(self.io_buffer_size // self.threads // 2, CHUNK_BYTES_MIN)
