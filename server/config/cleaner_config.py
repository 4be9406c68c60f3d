"""The part of the broker's configuration that is about cleaning.

Source: Apache Kafka, CleanerConfig.java.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import IoRates
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.formats.config_property import BOOLEAN, DOUBLE, DOUBLE_MAX, INT, LONG, STRING, prop
from storage.formats.content_digest import DIGEST_KINDS, XXH3


@dataclass(frozen=True, kw_only=True)
class CleanerConfig:
    """Whether the cleaner runs, and with which threads, memory, I/O budgets and checks."""

    __slots__ = ()

    log_cleaner_enable: bool = prop(
        "log.cleaner.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether the cleaner runs, which compacts topics with cleanup.policy=compact.",
    )
    log_cleaner_threads: int = prop(
        "log.cleaner.threads",
        INT,
        default=1,
        at_least=0,
        at_most=256,
        doc="The number of cleaning passes that run in parallel. A change while the broker runs can"
        " halve or double it at most; passes that exceed a lower number run to their end.",
    )
    log_cleaner_dedupe_buffer_size: int = prop(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        default=134_217_728,
        at_least=1,
        unit="bytes",
        doc="Memory for the offset maps of all cleaner threads together, 24 bytes for each key.",
    )
    log_cleaner_io_buffer_size: int = prop(
        "log.cleaner.io.buffer.size",
        INT,
        default=524_288,
        at_least=0,
        unit="bytes",
        doc="Memory for the read buffers of all cleaner threads together.",
    )
    log_cleaner_io_buffer_load_factor: float = prop(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        default=0.9,
        at_least=0.01,
        at_most=0.99,
        doc="How full an offset map may get (despite the property's name). A higher value fits more keys"
        " into a pass but makes it slower; values above 0.95 count as 0.95.",
    )
    log_cleaner_io_max_bytes_per_second: float = prop(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="The most bytes per second that all cleaner threads together read and write.",
    )
    log_cleaner_io_read_bytes_per_second: float = prop(
        "log.cleaner.io.read.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="The most bytes per second that all cleaner threads together read. Specific to Kompakt.",
    )
    log_cleaner_io_write_bytes_per_second: float = prop(
        "log.cleaner.io.write.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="The most bytes per second that all cleaner threads together write. Specific to Kompakt.",
    )
    log_cleaner_decompressed_batch_bytes_max: int = prop(
        "log.cleaner.decompressed.batch.bytes.max",
        LONG,
        default=256 << 20,
        at_least=DECOMPRESSED_BYTES_MAX,
        unit="bytes",
        doc="The most bytes that the records of one batch may take uncompressed, so that no batch can"
        " exhaust a cleaner thread's memory. The compression ratio does not matter. Compacted topics"
        " refuse larger batches, but an older log may contain one: it is not cleaned, and loses nothing."
        " Specific to Kompakt.",
    )
    log_cleaner_latency_guard_enable: bool = prop(
        "log.cleaner.latency.guard.enable",
        BOOLEAN,
        default=True,
        doc="Whether the cleaner slows down while produces take more than twice as long as without it."
        " Specific to Kompakt.",
    )
    log_cleaner_disk_pressure_free_bytes: int = prop(
        "log.cleaner.disk.pressure.free.bytes",
        LONG,
        default=0,
        at_least=0,
        unit="bytes",
        doc="While a log directory's disk has less than this free, the cleaner takes that directory's"
        " logs first, those that free the most bytes per byte of I/O, and ignores its I/O budgets and"
        " the latency guard. 0: never, because a broker must not break an operator's budget unasked."
        " Specific to Kompakt.",
    )
    log_cleaner_verify_enable: bool = prop(
        "log.cleaner.verify.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether a cleaning pass reads its output back and verifies it against the source segments"
        " before it replaces them. Specific to Kompakt.",
    )
    log_cleaner_key_sidecar_enable: bool = prop(
        "log.cleaner.key.sidecar.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether the cleaner stores the hashes of the keys beside each sealed segment of a compacted"
        " topic, 24 bytes for each record, so that the next pass reads only the segments that it"
        " rewrites. Specific to Kompakt.",
    )
    log_cleaner_index_ahead_enable: bool = prop(
        "log.cleaner.index.ahead.enable",
        BOOLEAN,
        default=True,
        doc="Whether the cleaner, while no log needs a pass, stores the hashes of the keys beside sealed"
        " segments before a pass needs them (log.cleaner.key.sidecar.enable), and counts the keys, so"
        " that it is known how many bytes a pass would free. Specific to Kompakt.",
    )
    log_cleaner_remote_enable: bool = prop(
        "log.cleaner.remote.enable",
        BOOLEAN,
        default=False,
        dynamic=False,
        doc="Whether other processes that send the token of the data directory, such as `kompakt"
        " pipeline clean`, may lease logs over the HTTP listener and clean them; the broker verifies and"
        " commits the result. Specific to Kompakt.",
    )
    log_cleaner_remote_lease_ms: int = prop(
        "log.cleaner.remote.lease.ms",
        LONG,
        default=300_000,
        at_least=1_000,
        unit="ms",
        dynamic=False,
        doc="A lease on a log ends if it is not renewed for this long: its files are removed, and the"
        " broker's own cleaner may take the log again. Specific to Kompakt.",
    )
    log_cleaner_backoff_ms: int = prop(
        "log.cleaner.backoff.ms",
        LONG,
        default=15_000,
        at_least=0,
        unit="ms",
        doc="How long the cleaner waits when no log needs cleaning.",
    )
    log_cleaner_order: str = prop(
        "log.cleaner.order",
        STRING,
        default="dirty-ratio",
        choices=("dirty-ratio", "benefit"),
        doc="Which of the logs that wait alike is compacted first: the one with the highest dirty ratio,"
        " as in Kafka, or the one that frees most bytes per byte of I/O: measured, where"
        " log.cleaner.index.ahead.enable allows it, or else expected from what its last pass freed."
        " Waiting, deadlines and compaction.priority count in both. Specific to Kompakt.",
    )
    log_cleaner_latency_guard_deadline_ms: int = prop(
        "log.cleaner.latency.guard.deadline.ms",
        LONG,
        default=3_600_000,
        at_least=-1,
        unit="ms",
        doc="When a log has waited for a pass, or a pass has run, for longer than this, the latency"
        " guard lets the cleaner go faster and faster, though produces get slower, until the backlog is"
        " gone; -1: never. Specific to Kompakt.",
    )
    log_cleaner_ledger_enable: bool = prop(
        "log.cleaner.ledger.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether each cleaning pass leaves a certificate in the ledger of its log directory, before"
        " it replaces segments: what it replaced by what, the digests, and the settings that decided."
        " Specific to Kompakt.",
    )
    log_cleaner_ledger_digest: str = prop(
        "log.cleaner.ledger.digest",
        STRING,
        default=XXH3,
        choices=DIGEST_KINDS,
        doc="How certificates digest the segments that a pass has written. xxh3 takes no time that can"
        " be measured and finds every accident; sha256 takes one to three seconds for each GiB"
        " written, and nobody can make other bytes that it fits. Specific to Kompakt.",
    )
    log_cleaner_ledger_bytes_max: int = prop(
        "log.cleaner.ledger.bytes.max",
        LONG,
        default=256 << 20,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="About how many bytes the ledger of a log directory takes; a pass takes about 2 KiB. Beyond"
        " that its oldest file is removed, which an entry records. -1: all files stay. Specific to"
        " Kompakt.",
    )
    log_cleaner_stalled_ms: int = prop(
        "log.cleaner.stalled.ms",
        LONG,
        default=300_000,
        at_least=1000,
        unit="ms",
        doc="A cleaning pass that makes no progress for this long, because a disk does not answer or for"
        " a bug, is logged with the stack of its thread, and counted in kompakt_cleaner_stalled_tasks."
        " Sleeping for the I/O limits is progress. Specific to Kompakt.",
    )
    log_cleaner_events_enable: bool = prop(
        "log.cleaner.events.enable",
        BOOLEAN,
        default=False,
        doc="Whether the start and the end of each cleaning pass, its failure and its stall are written"
        " to the topic __compaction_events, as JSON with the log as the key. The topic is created when"
        " this is set. Specific to Kompakt.",
    )

    @property
    def cleans(self) -> bool:
        """Whether the cleaner runs at all."""
        return self.log_cleaner_enable and self.log_cleaner_threads > 0

    def cleaner_settings(self) -> CleanerSettings:
        """Returns the cleaner's part of the configuration."""
        return CleanerSettings(
            threads=max(self.log_cleaner_threads, 1),
            dedupe_buffer_size=self.log_cleaner_dedupe_buffer_size,
            io_buffer_size=self.log_cleaner_io_buffer_size,
            io_buffer_load_factor=self.log_cleaner_io_buffer_load_factor,
            io_rates=IoRates(
                total=_rate(self.log_cleaner_io_max_bytes_per_second),
                read=_rate(self.log_cleaner_io_read_bytes_per_second),
                write=_rate(self.log_cleaner_io_write_bytes_per_second),
            ),
            verify=self.log_cleaner_verify_enable,
            keeps_key_sidecars=self.log_cleaner_key_sidecar_enable,
            backoff_ms=self.log_cleaner_backoff_ms,
            is_by_benefit=self.log_cleaner_order == "benefit",
            indexes_ahead=self.log_cleaner_index_ahead_enable,
            ledger_digest=self.log_cleaner_ledger_digest,
            stalled_ms=self.log_cleaner_stalled_ms,
            decompressed_bytes_max=self.log_cleaner_decompressed_batch_bytes_max,
        )


def _rate(bytes_per_second: float) -> float:
    """Returns the rate, infinite for Kafka's "no limit", which is the largest double."""
    return math.inf if bytes_per_second == DOUBLE_MAX else bytes_per_second
