"""The composition root: starts the parts of a broker in order and stops them in order.

    start   directories -> metadata store -> topics (recovery) -> listeners -> HTTP, cleaner, log clock
    stop    listeners (drain) -> log clock, cleaner -> sync rounds -> logs -> directories -> HTTP

A fenced broker (`server/standby/fence.py`) opens its internal listener only, and starts nothing that
writes. If that property changes, `wait_restart` returns: stop this broker and start another one.

The broker serves clients as soon as the logs are open. Whatever clients do not need starts later, and
its libraries are imported only then. `construction.py` builds the parts from the configuration.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from types import ModuleType
from typing import TYPE_CHECKING

from metrics.cleaner_probe import CleanerCounts
from metrics.facts import KeyLookupFacts, LoopFacts
from metrics.server_probe import ServerProbe
from replog.compactor import CompactionFacts
from server.admin.compaction_pauses import CompactionPauses
from server.config.broker_configs import BrokerConfigs, node_config_key
from server.config.config import BrokerConfig
from server.config.group_overrides import GroupOverrides
from server.construction import (
    checkpoint_upkeep_of,
    duties_of,
    group_commit_of,
    groups_of,
    key_tables_of,
    listeners_of,
    logins_of,
    offsets_of,
    peers_of,
    snapshots_of,
    topics_of,
    transaction_coordinator_of,
)
from server.coordination.checkpoint_upkeep import CheckpointUpkeep
from server.coordination.groups.consumer.topic_patterns import TopicPatterns
from server.coordination.groups.consumer_commands import ConsumerCommands
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.offset_commands import OffsetCommands
from server.coordination.transactions.coordinator import TransactionCoordinator
from server.durability.directories import abandon, any_topic_in, keep_reserves, open_directories
from server.durability.directory_watch import DirectoryWatch
from server.durability.fetch_waiters import FetchWaiters
from server.durability.group_commit import GroupCommit
from server.durability.log_clock import LogClock
from server.fetching.session_cache import FetchSessionCache
from server.http_opening import HttpOpening
from server.listening import Listening
from server.lookup.view_reads import ViewReads
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.features import Features
from server.metadata.followers import Followers
from server.metadata.node import Node
from server.metadata.producer_ids import ProducerIds
from server.net.limits import AnswerMemory, DecodedMemory, RequestMemory
from server.net.sparing_log import SparingLog
from server.runtime.background import Background
from server.runtime.clock import Clock
from server.runtime.cold_reads import ColdReads
from server.runtime.executors import Executors
from server.runtime.loop_watch import LoopWatch
from server.runtime.memory_upkeep import MemoryUpkeep
from server.runtime.turns import Turns
from server.security.acl_store import AclStore, open_acls
from server.security.audit_log import AuditLog
from server.security.authorizer import Authorizer
from server.security.quotas.client_quotas import quotas_of
from server.security.quotas.quota_entity import IP, KEYS_OF_IPS, QuotaEntity
from server.security.quotas.quota_store import QuotaStore
from server.security.sasl.logins import Logins
from server.security.scram_store import ScramStore
from server.standby.fence import Fence, Waiting
from server.standby.succession import Succession
from server.topics.stores import MetadataStores, open_stores
from server.topics.topics import Topics
from server.views.readable_topics import ReadableTopics
from server.views.snapshot_topics import SnapshotTopics
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import METADATA, NODE_METADATA
from storage.ledger.pass_history import PassHistory
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.log.sync_rounds import SyncRounds
from storage.recovery.progress import RecoveryProgress
from storage.threads import any_thread

if TYPE_CHECKING:
    from server.admin.compaction import Compaction
    from server.broker_cleaner import BrokerCleaner
    from server.lookup.key_tables import KeyTables
    from server.lookup.value_decoding import ValueDecoding
    from server.replication.link_spec import LinkSpec
    from server.replication.replication import Replication
    from server.replication.verify.verifications import Verifications
    from server.snapshots.snapshots import Snapshots

_log = logging.getLogger("server.broker")

STARTING, STOPPING = "starting", "stopping"
QUIET_IDLE_SHARE = 0.8
"""The share of the last minute in which the loop of a quiet broker was idle."""
DECODED_BYTES_MAX = 512 << 20
"""Bound on the decoded bytes of all large requests at a time; a request above it runs alone."""


class Broker:
    """One broker. Handlers use the attributes `config` to `warnings`; the rest is start and stop."""

    __slots__ = (
        "_background",
        "_checkpoints",
        "_cleaning",
        "_failed",
        "_has_logins",
        "_http",
        "_key_tables",
        "_link",
        "_log_clock",
        "_loop_watch",
        "_memory_upkeep",
        "_pauses",
        "_restart",
        "_state",
        "_stores",
        "_sync_rounds",
        "_watch",
        "acls",
        "answers",
        "audit",
        "authorizer",
        "cleaner_counts",
        "clock",
        "cold_reads",
        "config",
        "configs",
        "consumer_groups",
        "decoded",
        "decoding",
        "directories",
        "directories_left_out",
        "executors",
        "failure",
        "features",
        "fetch_sessions",
        "fetch_waiters",
        "files",
        "followers",
        "group_commit",
        "group_overrides",
        "groups",
        "has_acls",
        "has_storage",
        "links",
        "listening",
        "logins",
        "node",
        "offsets",
        "pass_history",
        "probe",
        "producer_ids",
        "quota_store",
        "quotas",
        "readable_topics",
        "recovery",
        "requests",
        "scram",
        "snapshots",
        "succession",
        "topics",
        "transactions",
        "turns",
        "verifications",
        "view_reads",
        "warnings",
    )  # fmt: skip

    config: BrokerConfig
    configs: BrokerConfigs
    node: Node
    topics: Topics
    readable_topics: ReadableTopics
    producer_ids: ProducerIds
    scram: ScramStore
    logins: Logins
    quota_store: QuotaStore
    group_commit: GroupCommit
    groups: GroupCoordinator
    consumer_groups: ConsumerCommands
    offsets: OffsetCommands
    transactions: TransactionCoordinator
    fetch_sessions: FetchSessionCache
    fetch_waiters: FetchWaiters
    cold_reads: ColdReads
    verifications: Verifications
    probe: ServerProbe
    clock: Clock
    warnings: SparingLog

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: FileSystem,
        clock: Clock,
        standby: LinkSpec | None = None,
    ) -> None:
        """
        Args:
            standby: the link to the broker of which this one is a standby: it opens no listener for
                clients until it is promoted.
        """
        # Constant after construction
        self.config = config
        self._link = standby
        self.files = files
        self.clock = clock
        self.probe = ServerProbe()
        self.recovery = RecoveryProgress()
        self.cleaner_counts = CleanerCounts(
            threads=config.log_cleaner_threads, clock=clock.monotonic
        )
        self.fetch_waiters = FetchWaiters()
        self.cold_reads = ColdReads(self.probe)
        self.view_reads = ViewReads(self.key_tables)
        self.pass_history = PassHistory(
            files, config.metadata_directory, bytes_max=config.log_cleaner_history_bytes_max
        )
        self.warnings = SparingLog(logging.getLogger("server.clients"), clock)
        self.audit = AuditLog(clock.now_ms)
        self.executors = Executors()
        self.turns = Turns()
        self.fetch_sessions = FetchSessionCache(
            slots_max=config.max_incremental_fetch_session_cache_slots,
            clock=clock.monotonic,
            turns=self.turns,
        )
        self.requests = RequestMemory(bytes_max=config.queued_max_request_bytes)
        self.answers = AnswerMemory(bytes_max=config.queued_max_response_bytes)
        self.decoded = DecodedMemory(bytes_max=DECODED_BYTES_MAX)
        self.quotas = quotas_of(config, on_pause=self.probe.client_throttled)
        self.listening = Listening(config)
        self.succession = Succession(config, is_standby=standby is not None)
        self.followers = Followers(
            snapshots_max=config.replog_follower_snapshots_max,
            bytes_per_second=config.replog_follower_bytes_per_second,
            clock=clock.monotonic,
        )
        self._background = Background()
        self._sync_rounds = SyncRounds()
        self._http = HttpOpening(self)
        self._failed = asyncio.Event()
        self._restart = asyncio.Event()
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
        self._stores: MetadataStores | None = None
        self.authorizer: Authorizer | None = None
        """Decides what clients may do; None if everything is allowed (authorizer.class.name)."""
        self.acls: AclStore | None = None
        """The ACLs of the authorizer."""
        self._has_logins = False
        self.has_acls = False
        """Whether users and ACLs are loaded: clients can log in and be authorized."""
        self._key_tables: KeyTables | None = None
        """None until keys are looked up or a view is read."""
        self.snapshots: Snapshots | None = None
        """The snapshots; None until the broker serves."""
        self.decoding: ValueDecoding | None = None
        """What decodes values by their schemas; None until HTTP is open, and without a registry."""
        self.links: Replication | None = None
        """The links to other clusters; None until the broker serves."""
        self._log_clock: LogClock | None = None
        self._watch: DirectoryWatch | None = None
        self._cleaning: BrokerCleaner | None = None
        self._checkpoints: CheckpointUpkeep | None = None
        self._memory_upkeep: MemoryUpkeep | None = None
        self._loop_watch: LoopWatch | None = None

    @property
    def fence(self) -> Fence | Waiting | None:
        """Why this broker serves only what reads; None if it serves all. Constant with storage."""
        return self.succession.fence

    @property
    def is_standby(self) -> bool:
        """Whether it only follows another broker, and has not been promoted."""
        return self._link is not None

    @property
    @any_thread
    def is_fenced(self) -> bool:
        """Whether another broker has taken over."""
        return self.fence is not None and bool(self.fence.by)

    @property
    def not_ready(self) -> str | None:
        """Why the broker does not serve clients at the moment; None while it does."""
        if self._state == STARTING and self.recovery.logs_to_open:
            return f"{STARTING}: {self.recovery}"
        return self._state

    @property
    @any_thread
    def loop_facts(self) -> LoopFacts:
        """How the event loop has spent its time since the broker began to serve."""
        return LoopFacts() if self._loop_watch is None else self._loop_watch.facts()

    def _is_quiet(self) -> bool:
        """Returns whether the event loop had little to do in the last minute; False before it serves."""
        watch = self._loop_watch
        return watch is not None and watch.facts().idle_share >= QUIET_IDLE_SHARE

    @property
    def replication(self) -> Replication:
        """The links of a broker that serves."""
        assert self.links is not None
        return self.links

    @property
    @any_thread
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The advertised host and port of each open listener, by its name."""
        return self.listening.addresses

    @property
    def http_port(self) -> int | None:
        """The port of the HTTP endpoint; None until it is open."""
        return self._http.port

    @property
    def metadata_log(self) -> EmbeddedMetadataStore:
        """The metadata store, whose log followers fetch. Only once the broker serves."""
        assert self._stores is not None
        return self._stores.cluster

    @property
    def checkpoints(self) -> CheckpointUpkeep | None:
        """The coordinators' checkpoints; None until the broker serves."""
        return self._checkpoints

    @property
    def metadata_revision(self) -> int:
        """Number of changes that the metadata store has made durable."""
        return 0 if self._stores is None else self._stores.cluster.revision

    @property
    def compaction(self) -> Compaction | None:
        """Controls the cleaner; None if the cleaner is disabled or has not started."""
        return None if self._cleaning is None else self._cleaning.compaction

    @property
    def dead_cleaner_workers(self) -> int:
        """Number of cleaner workers that ended unexpectedly."""
        return 0 if self._cleaning is None else self._cleaning.dead_workers

    @property
    def stalled_cleaner_tasks(self) -> int:
        """Number of passes and other tasks of the cleaner that make no progress."""
        return 0 if self._cleaning is None else self._cleaning.stalled_tasks

    @property
    @any_thread
    def cleaner_ledger_breaks(self) -> int:
        """Broken chains of certificates that this run has found."""
        return 0 if self._cleaning is None else self._cleaning.ledger_breaks

    async def start(self) -> None:
        """Recover the logs and serve clients; returns when every listener is open.

        Raises:
            StorageError: a directory is locked, belongs to another broker, or is damaged.
            ListenError: an address is in use, or the certificate of a listener cannot be used.
        """
        self._http.begin()
        await self._open_storage()
        if self._link is None:
            await self._open_listeners()
            self._state = None if self.fence is None else self.fence.reason
        else:
            self._state = f"a standby of {self._link.bootstrap}, not promoted"
        await self._http.finish()
        if self.fence is None:
            await self._start_cleaner()
        self._start_checkpoints()
        if self.fence is None:
            await self._start_links()
            await self._start_snapshots()
            self._start_log_clock()
        self._start_watching()
        self.succession.wait_for_peers(lost=self._no_peer_answers, answered=self._restart.set)
        self._loop_watch = LoopWatch()

    async def wait_failed(self) -> None:
        """Wait until the broker cannot continue; `failure` then says why."""
        await self._failed.wait()

    async def wait_restart(self) -> None:
        """Wait until another broker must be started in place of this one, because it was fenced, or no
        longer is. The caller stops this one first, which lets it answer."""
        await self._restart.wait()

    async def stop(self) -> None:
        """Drain, make everything durable and release all resources; also after a failed start."""
        self._state = STOPPING
        if self.has_storage:
            # Before the listeners drain, so that no connection waits for an answer from these.
            if self._key_tables is not None:
                await self._key_tables.stop()
            if self.snapshots is not None:
                await self.snapshots.stop()
            self.topics.interrupt()
            if self.links is not None:
                await self.verifications.stop()
                await self.links.stop()
            await self.transactions.stop()
            await self.offsets.stop()
            await self.groups.stop()
        for part in (
            self.listening,
            self.succession,
            self._watch,
            self._log_clock,
            self._memory_upkeep,
            self._cleaning,
            self._checkpoints,
        ):
            if part is not None:
                await part.stop()
        if self._loop_watch is not None:
            self._loop_watch.stop()
        await self._close_storage()
        await self.executors.upkeep.run(self._background.close)
        await self._http.close()
        if self.decoding is not None:
            await self.decoding.close()
        self.executors.close()

    # Storage.

    async def _open_storage(self) -> None:
        await self.succession.begin(self.files, self.executors.upkeep)
        await self._open_directories()
        await self.listening.open_certificates(self.configs.config)
        peers = await peers_of(self)
        await self._open_topics()
        assert self._stores is not None
        await self.succession.decide(self.configs, self._stores, peers, now_ms=self.clock.now_ms)
        self._make_coordinators()
        if self.fence is None:
            self._start_coordinators()
        self.has_storage = True
        await self.succession.finish(self.topics, self.transactions, self.offsets)

    async def _open_directories(self) -> None:
        """Open the log directories, then what the metadata store holds besides topics."""
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
        node_id = self.node.node_id
        self._stores = await open_stores(
            self.files,
            metadata,
            self.config.compaction_settings(),
            node_config_key=node_config_key(node_id),
            on_failure=holder.disk_failed,
            any_topic=lambda: any_topic_in(self.directories),
            is_quiet=self._is_quiet,
            term_min=self.succession.term_min,
        )
        await self.succession.settle(
            self._stores,
            directory_id=holder.directory_id,
            node_config_key=node_config_key(node_id),
        )
        store = self._stores.cluster
        store.pin_snapshots(self.followers.pinned)
        self.configs = BrokerConfigs(store, self._stores.node, self.config, node_id=node_id)
        await self.configs.open()
        self.features = Features(store)
        await self.features.open()
        self._expire_producers(self.configs.config)
        self.producer_ids = ProducerIds(store)
        self.group_overrides = GroupOverrides(store, self.config)
        await self.group_overrides.open()
        await self._open_logins(store)
        self.quota_store = QuotaStore(store, follow=self._follow_quota)
        await self.quota_store.open()
        opened_acls = await open_acls(store, self.config)
        if opened_acls is not None:
            self.authorizer, self.acls = opened_acls
        self.has_acls = True

    def _no_peer_answers(self, reason: str) -> None:
        if self._state != STOPPING:
            self._state = reason

    async def key_tables(self) -> KeyTables:
        """Returns the tables by which keys are looked up, which the first call makes."""
        if self._key_tables is None:
            # Imported in a thread, because clients are served already.
            await self.import_in_thread("server.lookup.key_tables")
            await self.import_in_thread("cleaner.lookup.latest_batches")
        if self._key_tables is None:  # Another call may have made them meanwhile.
            self._key_tables = key_tables_of(self)
        return self._key_tables

    @any_thread
    def key_table_facts(self) -> KeyLookupFacts:
        """Returns what metrics show about them."""
        return KeyLookupFacts() if self._key_tables is None else self._key_tables.facts()

    def metadata_facts(self) -> dict[str, CompactionFacts]:
        """Returns what metrics show about each metadata log. Only once the broker has its storage."""
        assert self._stores is not None
        return {METADATA: self._stores.cluster.facts(), NODE_METADATA: self._stores.node.facts()}

    async def _open_logins(self, store: EmbeddedMetadataStore) -> None:
        self.scram = ScramStore(store)
        await self.scram.open(keeps_decoys=bool(self.config.resolved_sasl_listeners()))
        self.logins = logins_of(self)
        self.logins.start()
        self._has_logins = True

    async def _open_topics(self) -> None:
        """Open the logs, after a crash with recovery; then follow changes of the configuration."""
        assert self._stores is not None
        self.group_commit = group_commit_of(self, self._sync_rounds)
        self.topics = topics_of(self, self._stores)
        self.readable_topics = ReadableTopics(
            self.topics,
            SnapshotTopics(
                self.directories, self.config.log_defaults, thread=self.executors.snapshots
            ),
            suffix=self.config.view_suffix,
            is_listed=self.config.view_list,
        )
        await self.topics.open()
        await self.executors.upkeep.run(keep_reserves, self.directories)
        self.configs.when_changed(self._reconfigure, check=self._check_change)
        self._pauses = CompactionPauses(self._stores.cluster, clock_ms=self.clock.now_ms)
        await self._pauses.open({topic.id for topic in self.topics.all()})

    def _make_coordinators(self) -> None:
        self.groups = groups_of(self)
        self.consumer_groups = ConsumerCommands(self.groups, TopicPatterns(self.readable_topics))
        self.offsets = offsets_of(self)
        self.transactions = transaction_coordinator_of(self)

    def _start_coordinators(self) -> None:
        """Start to load the groups and the transactions."""
        self.groups.start()
        self.offsets.start()
        self.transactions.start(self.succession.transaction_loaded)

    async def _close_storage(self) -> None:
        """Close what was opened, the directories last; mark those clean whose logs closed properly."""
        unclean = {directory.directory_id for directory in self.directories}
        if self.has_storage:
            await self.group_commit.stop()
            await self.executors.upkeep.run(self._background.drain)
            await self.executors.upkeep.run(self.cold_reads.close)
            unclean = await self.topics.close()
        self.pass_history.close()
        self._sync_rounds.close()
        if self._has_logins:
            await self.logins.stop()
        if self._stores is not None:
            await self._stores.close()
        for directory in self.directories:
            is_unclean = directory.directory_id in unclean
            await self.executors.upkeep.run(_close_directory, directory, is_unclean)

    # Serving.

    async def _open_listeners(self) -> None:
        self.listening.limit(self.configs.config)
        internal = self.config.internal_listener
        await self.listening.open(
            listeners_of(self),
            opens=lambda listener: self.fence is None or listener.name == internal,
        )

    async def import_in_thread(self, module: str) -> ModuleType:
        """Import a module that clients do not need, while the broker serves them already."""
        return await self.executors.upkeep.run(importlib.import_module, module)

    async def _start_cleaner(self) -> None:
        if self.config.cleans:
            await self.import_in_thread("server.broker_cleaner")
            from server.broker_cleaner import BrokerCleaner

            self._cleaning = BrokerCleaner(self, self._pauses, background=self._background)
            await self._cleaning.open()

    def _start_checkpoints(self) -> None:
        """Start to make the checkpoints of the coordinators' partitions."""
        throttle = None if self._cleaning is None else self._cleaning.throttle
        self._checkpoints = checkpoint_upkeep_of(self, throttle)

    async def _start_links(self) -> None:
        """Start to follow other clusters."""
        await self.import_in_thread("server.links")
        from server.links import replication_of, verifications_of

        assert self._stores is not None
        links = replication_of(self, self._stores.cluster, standby=self._link)
        self.verifications = verifications_of(self, links)
        self.links = links
        await links.open()

    async def _start_snapshots(self) -> None:
        """Remove what is left of unfinished snapshots, and let clients make some."""
        await self.import_in_thread("server.snapshots.snapshots")
        assert self._stores is not None
        snapshots = snapshots_of(self, self._stores)
        await snapshots.open()
        self.snapshots = snapshots

    async def _check_change(self, config: BrokerConfig) -> None:
        """Check a configuration that a client wants to set. Raises ConfigError."""
        config.connections_max_by_ip()
        self.topics.check_defaults(config.log_defaults)
        config.check_fence()
        await self.listening.check(config)

    async def _reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed dynamic properties; returns when no part uses the old values."""
        if self.has_storage and bool(config.broker_fenced_by) is not self.is_fenced:
            self._restart.set()
        if self._cleaning is not None:
            await self._cleaning.configure(config)
        self.listening.limit(config)
        self._expire_producers(config)
        await self.topics.follow_defaults(config.log_defaults)
        await self.listening.follow(config)

    def _follow_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """Apply a changed quota; None: it was removed."""
        if key in KEYS_OF_IPS:
            self.listening.rates.set_ip(entity.name(IP), value)
        else:
            self.quotas.set(entity, key, value)

    def log_removed(self, log: PartitionLog) -> None:
        """Give up what waits for a log that was deleted with its topic."""
        self.group_commit.abandon(log)
        if self._cleaning is not None:
            self._cleaning.log_removed(log.topic_partition)

    def _expire_producers(self, config: BrokerConfig) -> None:
        for directory in self.directories:
            directory.expire_producers_after(config.producer_id_expiration_ms)

    def _start_log_clock(self) -> None:
        self._log_clock = LogClock(
            self.topics.logs, self.clock, duties_of(self), upkeep=self.executors.upkeep
        )

    def _start_watching(self) -> None:
        self._memory_upkeep = MemoryUpkeep(self._held_bytes, self.executors.upkeep)
        self._watch = DirectoryWatch(
            self.directories,
            metadata_path=self.config.metadata_directory,
            abandon=self.group_commit.abandon,
            fail=self._fail,
        )

    def _held_bytes(self) -> int:
        """Returns the bytes that requests and answers hold in memory now."""
        return self.requests.held_bytes + self.answers.held_bytes + self.decoded.held_bytes

    def _fail(self, reason: str) -> None:
        """End the broker because it cannot continue."""
        _log.critical("%s", reason)
        self.failure = reason
        self._failed.set()


def _close_directory(directory: LogDirectory, is_unclean: bool) -> None:
    try:
        if is_unclean:
            abandon(directory, "not all of its logs closed cleanly")
        else:
            directory.close()
    except StorageError:
        _log.exception("%s: could not close the directory cleanly", directory.path)
