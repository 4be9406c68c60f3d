"""The broker's cleaner: the pool, what sets its pace, and what operators control it by.

Imported only when the cleaner starts, because clients do not need its libraries.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cleaner.pacing.probe import Probes
from cleaner.pacing.throttle import Throttle
from cleaner.pool.pool import CleanerPool
from server.admin.compaction import Compaction
from server.admin.compaction_pauses import CompactionPauses
from server.admin.latency_watch import LatencyWatch
from server.admin.leases import CleaningLeases
from server.admin.ledger_verifications import LedgerVerifications
from server.admin.pass_history import HistoryProbe
from server.admin.remote_token import remote_token
from server.config.config import BrokerConfig
from server.durability.space_watch import SpaceWatch
from server.durability.unkeyed_appends import UnkeyedAppends
from server.erasure.certificate import Issuer
from server.erasure.erasures import Erasures
from server.erasure.intake import ErasureIntake
from server.erasure.proofs import Prover
from server.events.probe import EventProbe
from server.events.writer import EventWriter
from server.ledger.ledgers import CleaningLedgers
from server.runtime.background import Background
from server.runtime.executors import Executor
from storage.batches.validate import ValidBatch
from storage.files.signing_key import SigningKey
from storage.formats.topic_partition import TopicPartition
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

if TYPE_CHECKING:
    from server.broker import Broker


@loop_thread
class BrokerCleaner:
    """The cleaner of one broker, from its start until `stop`."""

    __slots__ = (
        "_counts",
        "_event_probe",
        "_events",
        "_guard_deadline_ms",
        "_is_standby",
        "_latency_watch",
        "_pool",
        "_space_watch",
        "_upkeep",
        "compaction",
        "ledgers",
    )

    def __init__(self, broker: Broker, pauses: CompactionPauses, *, background: Background) -> None:
        """Start to clean the logs of a broker that serves clients.

        Raises:
            StorageError: the token of remote cleaners cannot be read or written; nothing has started.
        """
        config = broker.configs.config
        token = _remote_token(broker)
        self._counts = broker.cleaner_counts
        self._upkeep: Executor = broker.executors.upkeep
        self.ledgers = CleaningLedgers(
            broker.files,
            broker.directories,
            is_enabled=config.log_cleaner_ledger_enable,
            bytes_max=config.log_cleaner_ledger_bytes_max,
            now_ms=broker.clock.now_ms,
        )
        """The certificates of passes."""
        background.submit(self.ledgers.begin)
        self._events = EventWriter(
            broker.topics,
            broker.group_commit,
            self._counts,
            clock=broker.clock,
            reading=broker.executors.upkeep,
            broker=broker.node.node_id,
        )
        self._event_probe = EventProbe(self._events, broker=broker.node.node_id, clock=broker.clock)
        self._pool = _pool(broker, background, self.ledgers, self._event_probe)
        pauses.when_changed(self._pool.pause)
        self._counts.set_threads(config.log_cleaner_threads)
        self._is_standby = broker.is_standby
        self._follow_events(config)
        self._pool.start()
        self._guard_deadline_ms = config.log_cleaner_latency_guard_deadline_ms
        self._latency_watch = LatencyWatch(
            broker.probe,
            self._counts,
            set_rate=self._pool.set_guard_rate,
            is_enabled=config.log_cleaner_latency_guard_enable,
            is_late=self._is_late,
        )
        self.compaction = Compaction(
            self._pool,
            pauses,
            broker.topics,
            self._latency_watch,
            _erasures(broker, self._pool),
            clock=broker.clock,
            administration=broker.executors.administration,
            ledgers=self.ledgers,
            ledger_reads=broker.executors.ledgers,
            ledger_verifications=LedgerVerifications(
                broker.files,
                lambda: self.ledgers.paths,
                self._pool.throttle,
                executor=broker.executors.ledger_verification,
                monotonic=broker.clock.monotonic,
            ),
        )
        if token is not None:
            self._enable_leases(broker, token)
        self._space_watch = SpaceWatch(
            broker.directories,
            broker.files,
            self._counts,
            free_bytes_min=config.log_cleaner_disk_pressure_free_bytes,
            pinned_bytes=lambda: broker.snapshots.facts().pinned_bytes if broker.snapshots else 0,
            tell=self._pool.short_of_space,
            upkeep=broker.executors.upkeep,
        )

    def _enable_leases(self, broker: Broker, token: str) -> None:
        """Let other processes that send the token lease logs and clean them."""
        config = broker.config
        self.compaction.remote_token = token
        self.compaction.leases = CleaningLeases(
            self._pool,
            broker.files,
            self.compaction.jobs,
            seconds=config.log_cleaner_remote_lease_ms / 1000,
            decompressed_bytes_max=config.log_cleaner_decompressed_batch_bytes_max,
            report_count=self._counts.set_leases,
            administration=broker.executors.administration,
        )

    @property
    def throttle(self) -> Throttle:
        """The I/O budgets of passes."""
        return self._pool.throttle

    @property
    @any_thread
    def dead_workers(self) -> int:
        """Number of workers that ended unexpectedly."""
        return self._pool.dead_workers

    @property
    @any_thread
    def stalled_tasks(self) -> int:
        """Number of tasks that make no progress."""
        return self._pool.stalled_tasks

    @property
    @any_thread
    def ledger_breaks(self) -> int:
        """How many broken chains of certificates were found."""
        return self.ledgers.breaks

    async def open(self) -> None:
        """Continue with the erasures of the last run.

        Raises:
            StorageError: the metadata store cannot be read.
        """
        await self.compaction.erasures.open()

    async def configure(self, config: BrokerConfig) -> None:
        """Apply changed dynamic properties."""
        self._pool.configure(config.cleaner_settings())
        self._counts.set_threads(config.log_cleaner_threads)
        self._latency_watch.enable(config.log_cleaner_latency_guard_enable)
        self._guard_deadline_ms = config.log_cleaner_latency_guard_deadline_ms
        self._space_watch.set_free_bytes_min(config.log_cleaner_disk_pressure_free_bytes)
        self._follow_events(config)

    def _follow_events(self, config: BrokerConfig) -> None:
        """Write events if they are enabled.

        A standby writes none: its topics are those of its source, and it would delete the topic again.
        """
        if not config.log_cleaner_events_enable or self._is_standby:
            self._events.disable()
        elif not self._events.is_enabled:
            self._events.start(self._event_probe.runs)

    def log_removed(self, log: TopicPartition) -> None:
        """Note that a log is gone, because its topic was deleted."""
        self._events.deleted(log)

    def _is_late(self) -> bool:
        """Returns whether the backlog is past the latency guard's deadline."""
        return 0 <= self._guard_deadline_ms < self._pool.late_ms

    async def stop(self) -> None:
        """Stop the passes, then wait until all jobs and leases have ended."""
        for part in (
            self._latency_watch,
            self._space_watch,
            self._pool,
            self.compaction,
            self._events,
        ):
            await part.stop()
        await self._upkeep.run(self.ledgers.close)


def _pool(
    broker: Broker, background: Background, ledgers: CleaningLedgers, events: EventProbe
) -> CleanerPool:
    """Returns the pool, whose passes are counted, recorded in the history, and offered as events."""
    history = HistoryProbe(broker.pass_history, background=background.submit, clock=broker.clock)
    return CleanerPool(
        broker.topics.logs,
        broker.configs.config.cleaner_settings(),
        clock=broker.clock,
        probe=Probes(broker.cleaner_counts, history, events),
        hold_of=broker.groups.holds.hold_of,
        ledgers=ledgers.enabled,
        append=partial(_append_tombstones, broker),
        unkeyed=UnkeyedAppends(
            broker.topics,
            broker.group_commit,
            clock=broker.clock,
            validation=broker.executors.validation,
        ),
    )


def _append_tombstones(broker: Broker, log: PartitionLog, batch: ValidBatch) -> Appended:
    """Append a batch of tombstones for expired values, as if a client had sent it with acks=1."""
    appended = log.appender.append_as_leader(batch, now_ms=broker.clock.now_ms())
    assert isinstance(appended, Appended), "a batch without a producer id is never refused"
    broker.group_commit.appended(log)
    count, size = batch.header.record_count, batch.header.size_bytes
    broker.probe.batch_appended(log.topic_partition.topic, count, size)
    return appended


def _erasures(broker: Broker, pool: CleanerPool) -> Erasures:
    """Returns the erasures, not yet opened."""
    threads = broker.executors.administration
    intake = ErasureIntake(
        pool,
        broker.topics,
        broker.group_commit,
        broker.clock,
        threads=threads,
        validation=broker.executors.validation,
    )

    def issuer() -> Issuer:
        key = SigningKey.load_or_create(broker.files, broker.config.metadata_directory)
        return Issuer(
            cluster_id=broker.node.cluster_id,
            node_id=broker.node.node_id,
            key=key,
            followers=tuple(each.id for each in broker.followers.all()),
        )

    return Erasures(
        broker.metadata_log,
        pool,
        broker.topics,
        intake,
        Prover(pool, broker.files, threads=threads),
        issuer,
        hold_of=broker.groups.holds.hold_of,
        clock=broker.clock,
        threads=threads,
    )


def _remote_token(broker: Broker) -> str | None:
    """Returns the token that remote cleaners must send; None if remote cleaning is disabled."""
    if not broker.config.log_cleaner_remote_enable:
        return None
    return remote_token(broker.files, broker.config.metadata_directory)
