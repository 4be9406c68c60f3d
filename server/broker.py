"""The composition root: creates the parts of a broker, starts them in order and stops them in order.

    start   directories -> metadata store -> topics (recovery) -> listeners -> HTTP, cleaner, log clock
    stop    listeners (drain) -> log clock, cleaner -> sync rounds -> logs -> directories -> HTTP

The broker serves clients as soon as the logs are open. Whatever clients do not need starts later, and
its libraries are imported only then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from metrics.cleaner_probe import CleanerCounts
from metrics.facts import LoopFacts
from metrics.server_probe import ServerProbe
from server.admin.compaction_pauses import CompactionPauses
from server.admin.latency_watch import LatencyWatch
from server.config.broker_configs import BrokerConfigs
from server.config.config import BrokerConfig
from server.config.group_overrides import GroupOverrides
from server.coordination.groups.consumer_commands import ConsumerCommands
from server.coordination.groups.coordinator import GroupCoordinator, coordinator_of
from server.coordination.groups.offset_commands import OffsetCommands
from server.coordination.transactions.coordinator import TransactionCoordinator, transactions_of
from server.dispatch import Dispatcher
from server.durability.directories import abandon, any_topic_in, keep_reserves, open_directories
from server.durability.directory_watch import DirectoryWatch
from server.durability.fetch_waiters import FetchWaiters
from server.durability.group_commit import GroupCommit
from server.durability.log_clock import Duty, LogClock, checkpoint_duty, retention_duty, roll_duty
from server.durability.space_watch import SpaceWatch
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.features import Features
from server.metadata.node import Node
from server.metadata.producer_ids import ProducerIds
from server.net.connection import Connection, Shared
from server.net.limits import AnswerMemory, ConnectionLimits, DecodedMemory, RequestMemory
from server.net.listener import Listeners, SocketOptions
from server.net.sparing_log import SparingLog
from server.runtime.background import Background
from server.runtime.clock import Clock
from server.runtime.cold_reads import ColdReads
from server.runtime.executors import Executors
from server.runtime.loop_watch import LoopWatch
from server.runtime.memory_upkeep import MemoryUpkeep
from server.runtime.tasks import awaited
from server.runtime.turns import Turns
from server.topics.topic import TopicDefaults
from server.topics.topics import Topics
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import METADATA, join
from storage.log.directory import LogDirectory
from storage.log.pass_history import PassHistory
from storage.log.wal import Wal
from storage.recovery.progress import RecoveryProgress

if TYPE_CHECKING:
    from cleaner.pool.pool import CleanerPool
    from metrics.http_endpoint import HttpEndpoint
    from server.admin.compaction import Compaction

_log = logging.getLogger("server.broker")

STARTING = "starting"
DECODED_BYTES_MAX = 512 << 20
"""Bound on the decoded bytes of all large requests at a time; a request above it runs alone."""
HTTP_PATIENCE_SECONDS = 1.0
"""If recovery takes longer, HTTP opens before it ends, so that supervisors see the broker alive."""


class Broker:
    """One broker. Handlers use the attributes `config` to `warnings`; the rest is start and stop."""

    __slots__ = (
        "_background",
        "_cleaner",
        "_failed",
        "_http",
        "_http_opening",
        "_latency_watch",
        "_limits",
        "_listeners",
        "_log_clock",
        "_loop_watch",
        "_memory_upkeep",
        "_pauses",
        "_space_watch",
        "_state",
        "_store",
        "_wal",
        "_watch",
        "addresses",
        "answers",
        "cleaner_counts",
        "clock",
        "cold_reads",
        "compaction",
        "config",
        "configs",
        "consumer_groups",
        "decoded",
        "directories",
        "directories_left_out",
        "executors",
        "failure",
        "features",
        "fetch_waiters",
        "files",
        "group_commit",
        "group_overrides",
        "groups",
        "has_storage",
        "http_port",
        "node",
        "offsets",
        "pass_history",
        "probe",
        "producer_ids",
        "recovery",
        "requests",
        "topics",
        "transactions",
        "turns",
        "warnings",
    )

    config: BrokerConfig
    configs: BrokerConfigs
    node: Node
    topics: Topics
    producer_ids: ProducerIds
    group_commit: GroupCommit
    groups: GroupCoordinator
    consumer_groups: ConsumerCommands
    offsets: OffsetCommands
    transactions: TransactionCoordinator
    fetch_waiters: FetchWaiters
    cold_reads: ColdReads
    probe: ServerProbe
    clock: Clock
    warnings: SparingLog

    def __init__(self, config: BrokerConfig, *, files: FileSystem, clock: Clock) -> None:
        # Constant after construction
        self.config = config
        self.files = files
        self.clock = clock
        self.probe = ServerProbe()
        self.recovery = RecoveryProgress()
        self.cleaner_counts = CleanerCounts(
            threads=config.log_cleaner_threads, clock=clock.monotonic
        )
        self.fetch_waiters = FetchWaiters()
        self.cold_reads = ColdReads(self.probe)
        self.pass_history = PassHistory(
            files, config.metadata_directory, bytes_max=config.log_cleaner_history_bytes_max
        )
        self.warnings = SparingLog(logging.getLogger("server.clients"), clock)
        self.executors = Executors()
        self.turns = Turns()
        self.requests = RequestMemory(bytes_max=config.queued_max_request_bytes)
        self.answers = AnswerMemory(bytes_max=config.queued_max_response_bytes)
        self.decoded = DecodedMemory(bytes_max=DECODED_BYTES_MAX)
        self._background = Background()
        self._wal = Wal()
        self._limits = ConnectionLimits(
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
        )
        self._failed = asyncio.Event()
        # State: why the broker does not serve clients now; None while it serves them.
        self._state: str | None = STARTING
        self.failure: str | None = None
        """Why the broker ended without a request to stop; None unless it did."""
        # Created by `start` in this order; `stop` ends those that exist.
        self.directories: tuple[LogDirectory, ...] = ()
        self.directories_left_out: tuple[str, ...] = ()
        """The paths of `log.dirs` that could not be opened."""
        self.has_storage = False
        """Whether the topics are open. If so, everything that `_open_storage` creates is set."""
        self._store: EmbeddedMetadataStore | None = None
        self._listeners: Listeners | None = None
        self._log_clock: LogClock | None = None
        self._watch: DirectoryWatch | None = None
        self._cleaner: CleanerPool | None = None
        self.compaction: Compaction | None = None
        """Controls the cleaner; None if the cleaner is disabled or has not started."""
        self._latency_watch: LatencyWatch | None = None
        self._space_watch: SpaceWatch | None = None
        self._memory_upkeep: MemoryUpkeep | None = None
        self._loop_watch: LoopWatch | None = None
        self._http: HttpEndpoint | None = None
        self._http_opening: asyncio.Task[None] | None = None
        self.addresses: dict[str, tuple[str, int]] = {}
        """The advertised host and port of each open listener, by its name."""
        self.http_port: int | None = None

    @property
    def not_ready(self) -> str | None:
        """Why the broker does not serve clients at the moment; None while it does."""
        if self._state == STARTING and self.recovery.logs_to_open:
            return f"{STARTING}: {self.recovery}"
        return self._state

    @property
    def loop_facts(self) -> LoopFacts:
        """How the event loop has spent its time since the broker began to serve. Any thread."""
        return LoopFacts() if self._loop_watch is None else self._loop_watch.facts()

    @property
    def metadata_revision(self) -> int:
        """Number of changes that the metadata store has made durable."""
        return 0 if self._store is None else self._store.revision

    @property
    def dead_cleaner_workers(self) -> int:
        """Number of cleaner workers that ended unexpectedly."""
        return 0 if self._cleaner is None else self._cleaner.dead_workers

    async def start(self) -> None:
        """Recover the logs and serve clients; returns when every listener is open.

        Raises:
            StorageError: a directory is locked, belongs to another broker, or is damaged.
            ListenError: an address is in use.
        """
        if self.config.resolved_http_listener() is not None:
            self._http_opening = awaited(self._open_http_if_slow())
        await self._open_storage()
        await self._open_listeners()
        self._state = None
        await self._open_http_now()
        self._start_cleaner()
        self._start_watching()
        self._loop_watch = LoopWatch()

    async def wait_failed(self) -> None:
        """Wait until the broker cannot go on; `failure` then says why."""
        await self._failed.wait()

    async def stop(self) -> None:
        """Drain, make everything durable and release all resources; also after a failed start."""
        self._state = "stopping"
        if self.has_storage:
            # Before the listeners drain, so that no connection waits for an answer from these.
            self.topics.interrupt()
            await self.transactions.stop()
            await self.offsets.stop()
            await self.groups.stop()
        if self._listeners is not None:
            await self._listeners.stop(grace_s=self.config.controlled_shutdown_timeout_ms / 1000)
        watches = (self._watch, self._log_clock, self._latency_watch, self._space_watch)
        for task in (*watches, self._memory_upkeep, self._cleaner):
            if task is not None:
                await task.stop()
        if self._loop_watch is not None:
            self._loop_watch.stop()
        if self.compaction is not None:
            await self.compaction.stop()
        await self._close_storage()
        await self.executors.upkeep.run(self._background.close)
        if self._http_opening is not None:
            self._http_opening.cancel()
            await asyncio.wait([self._http_opening])
        if self._http is not None:
            await self._http.close()
        self.executors.close()

    # Storage.

    async def _open_storage(self) -> None:
        opened = await self.executors.upkeep.run(
            open_directories,
            self.config,
            files=self.files,
            background=self._background.submit,
            clock=self.clock,
            progress=self.recovery,
        )
        self.directories, self.directories_left_out, self.node = opened
        metadata = self.config.metadata_directory
        (holder,) = [each for each in self.directories if each.path == metadata]
        self._store = await EmbeddedMetadataStore.open(
            self.files,
            join(metadata, METADATA),
            on_failure=holder.disk_failed,
            any_topic=lambda: any_topic_in(self.directories),
        )
        self.group_commit = GroupCommit(
            self._wal,
            self.fetch_waiters,
            flush_on_acks_all=self.config.flush_on_acks_all,
            probe=self.probe,
        )
        self.configs = BrokerConfigs(self._store, self.config, node_id=self.node.node_id)
        await self.configs.open()
        self.features = Features(self._store)
        await self.features.open()
        self._expire_producers(self.configs.config)
        self.producer_ids = ProducerIds(self._store)
        self.topics = Topics(
            self._store,
            self.directories,
            files=self.files,
            defaults=TopicDefaults(
                config=self.configs.config.log_defaults,
                partitions_count=self.config.num_partitions,
                partitions_max=self.config.partitions_max,
            ),
            administration=self.executors.administration,
            on_removed=self.group_commit.abandon,
            recovery_threads=self.configs.config.num_recovery_threads_per_data_dir,
            progress=self.recovery,
            has_all_directories=not self.directories_left_out,
        )
        await self.topics.open()
        await self.executors.upkeep.run(keep_reserves, self.directories)
        self.configs.when_changed(
            self._reconfigure, check=lambda config: self.topics.check_defaults(config.log_defaults)
        )
        self._pauses = CompactionPauses(self._store, clock_ms=self.clock.now_ms)
        await self._pauses.open({topic.id for topic in self.topics.all()})
        self.group_overrides = GroupOverrides(self._store, self.config)
        await self.group_overrides.open()
        self.groups = coordinator_of(
            self.topics,
            self.group_commit,
            self.configs.config,
            clock=self.clock,
            own_times=self.group_overrides.times,
            loading=self.executors.loading,
        )
        self.groups.start()
        self.consumer_groups = ConsumerCommands(self.groups)
        self.offsets = OffsetCommands(
            self.groups,
            retention_ms=self.config.offsets_retention_minutes * 60_000,
            check_interval_ms=self.config.offsets_retention_check_interval_ms,
            turns=self.turns,
        )
        self.offsets.start()
        self.transactions = transactions_of(
            self.topics,
            self.group_commit,
            self.configs.config,
            clock=self.clock,
            producer_ids=self.producer_ids,
            offsets_ended=self.offsets.transaction_ended,
            turns=self.turns,
            loading=self.executors.loading,
        )
        self.transactions.start()
        self.has_storage = True

    async def _close_storage(self) -> None:
        """Close what was opened, the directories last; mark those clean whose logs closed properly."""
        unclean = {directory.directory_id for directory in self.directories}
        if self.has_storage:
            await self.group_commit.stop()
            await self.executors.upkeep.run(self._background.drain)
            await self.executors.upkeep.run(self.cold_reads.close)
            unclean = await self.topics.close()
        self.pass_history.close()
        self._wal.close()
        if self._store is not None:
            await self._store.close()
        for directory in self.directories:
            is_unclean = directory.directory_id in unclean
            await self.executors.upkeep.run(_close_directory, directory, is_unclean)

    # Serving.

    async def _open_listeners(self) -> None:
        connections: set[Connection] = set()
        self._limits.configure(
            connections_max=self.configs.config.max_connections,
            connections_per_ip_max=self.configs.config.max_connections_per_ip,
        )
        shared = Shared(
            dispatch=Dispatcher(self),
            limits=self._limits,
            memory=self.requests,
            answers=self.answers,
            turns=self.turns,
            probe=self.probe,
            warnings=self.warnings,
            connections=connections,
            frame_bytes_max=self.config.socket_request_max_bytes,
        )
        self._listeners = Listeners(
            shared,
            idle_ms=self.config.connections_max_idle_ms,
            options=SocketOptions(
                backlog=self.config.socket_listen_backlog_size,
                send_buffer_bytes=self.config.socket_send_buffer_bytes,
                receive_buffer_bytes=self.config.socket_receive_buffer_bytes,
            ),
        )
        for listener in self.config.resolved_listeners():
            advertised = await self._listeners.open(listener)
            self.addresses[advertised.name] = (advertised.host, advertised.port)

    def _start_cleaner(self) -> None:
        if not self.config.cleans:
            return
        from cleaner.pacing.probe import Probes
        from cleaner.pool.pool import CleanerPool
        from server.admin.compaction import Compaction
        from server.admin.pass_history import HistoryProbe

        self._cleaner = CleanerPool(
            self.topics.logs,
            self.configs.config.cleaner_settings(),
            clock=self.clock,
            probe=Probes(
                self.cleaner_counts,
                HistoryProbe(
                    self.pass_history, background=self._background.submit, clock=self.clock
                ),
            ),
        )
        self._pauses.when_changed(self._cleaner.pause)
        self.cleaner_counts.set_threads(self.configs.config.log_cleaner_threads)
        self._cleaner.start()
        self._latency_watch = LatencyWatch(
            self.probe,
            self.cleaner_counts,
            set_rate=self._cleaner.set_guard_rate,
            is_enabled=self.configs.config.log_cleaner_latency_guard_enable,
        )
        self.compaction = Compaction(
            self._cleaner,
            self._pauses,
            self.topics,
            self._latency_watch,
            clock=self.clock,
            administration=self.executors.administration,
        )
        if self.config.log_cleaner_remote_enable:
            self._enable_remote_cleaning(self.compaction, self._cleaner)
        self._space_watch = SpaceWatch(
            self.directories,
            self.files,
            self.cleaner_counts,
            free_bytes_min=self.configs.config.log_cleaner_disk_pressure_free_bytes,
            tell=self._cleaner.short_of_space,
            upkeep=self.executors.upkeep,
        )

    def _enable_remote_cleaning(self, compaction: Compaction, pool: CleanerPool) -> None:
        from server.admin.leases import CleaningLeases
        from server.admin.remote_token import remote_token

        compaction.remote_token = remote_token(self.files, self.config.metadata_directory)
        compaction.leases = CleaningLeases(
            pool,
            self.files,
            compaction.jobs,
            seconds=self.config.log_cleaner_remote_lease_ms / 1000,
            decompressed_bytes_max=self.config.log_cleaner_decompressed_batch_bytes_max,
            report_count=self.cleaner_counts.set_leases,
            administration=self.executors.administration,
        )

    async def _reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed dynamic properties; returns when no part uses the old values."""
        if self._cleaner is not None:
            self._cleaner.configure(config.cleaner_settings())
            self.cleaner_counts.set_threads(config.log_cleaner_threads)
        if self._latency_watch is not None:
            self._latency_watch.enable(config.log_cleaner_latency_guard_enable)
        if self._space_watch is not None:
            self._space_watch.set_free_bytes_min(config.log_cleaner_disk_pressure_free_bytes)
        self._limits.configure(
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
        )
        self._expire_producers(config)
        await self.topics.follow_defaults(config.log_defaults)

    def _expire_producers(self, config: BrokerConfig) -> None:
        for directory in self.directories:
            directory.expire_producers_after(config.producer_id_expiration_ms)

    def _start_watching(self) -> None:
        self._memory_upkeep = MemoryUpkeep(self._held_bytes, self.executors.upkeep)
        self._log_clock = LogClock(
            self.topics.logs, self.clock, self._duties(), upkeep=self.executors.upkeep
        )
        self._watch = DirectoryWatch(
            self.directories,
            metadata_path=self.config.metadata_directory,
            abandon=self.group_commit.abandon,
            fail=self._fail,
        )

    def _held_bytes(self) -> int:
        """Returns the bytes that requests and answers hold in memory now."""
        return self.requests.held_bytes + self.answers.held_bytes + self.decoded.held_bytes

    def _duties(self) -> list[Duty]:
        """Returns the duties that the log clock performs on every log."""
        duties = [
            roll_duty(self.config.log_roll_check_interval_ms),
            checkpoint_duty(self.config.log_flush_offset_checkpoint_interval_ms),
            retention_duty(self.config.log_retention_check_interval_ms, self.clock, self.probe),
        ]
        if not self.config.flush_on_acks_all:
            interval_ms = self.config.log_flush_scheduler_interval_ms
            look = self.group_commit.flush_if_due
            duties.append(Duty(name="flush", interval_ms=interval_ms, look=look))
        return duties

    def _fail(self, reason: str) -> None:
        """End the broker because it cannot go on."""
        _log.critical("%s", reason)
        self.failure = reason
        self._failed.set()

    async def _open_http_if_slow(self) -> None:
        await asyncio.sleep(HTTP_PATIENCE_SECONDS)
        await self._open_http()

    async def _open_http_now(self) -> None:
        if self._http_opening is None:
            return
        if self._http is None:
            self._http_opening.cancel()
            self._http_opening = awaited(self._open_http())
        await self._http_opening

    async def _open_http(self) -> None:
        """Open the HTTP endpoint; its libraries are imported here, as that takes longer than a start."""
        from server.http import open_http

        self._http, self.http_port = await open_http(self)


def _close_directory(directory: LogDirectory, is_unclean: bool) -> None:
    try:
        if is_unclean:
            abandon(directory, "not all of its logs closed cleanly")
        else:
            directory.close()
    except StorageError:
        _log.exception("%s: could not close the directory cleanly", directory.path)
