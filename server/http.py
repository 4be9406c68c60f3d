"""Opens the HTTP endpoint of a broker; imported only when needed, because its imports are slow."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from cleaner.pool.backlog import Backlog, Backlogs
from cleaner.pool.lookout import stable_offset
from cleaner.rules.reclaimable import Reclaimable
from metrics.collector import BrokerCollector, Scraper
from metrics.facts import (
    BrokerFacts,
    FetchSessionFacts,
    FollowedTopicFacts,
    FollowerFacts,
    PartitionFacts,
    QuotaFacts,
    SnapshotFacts,
)
from metrics.http_endpoint import HttpEndpoint
from protocol.wire.error_codes import ErrorCode
from server.admin.compaction_routes import CompactionRoutes
from server.admin.erasure_routes import ErasureRoutes
from server.admin.follower_routes import FollowerRoutes, Leading
from server.admin.http_access import HttpAccess
from server.admin.http_guard import refusal
from server.admin.http_logins import HttpLogins
from server.admin.lease_routes import LeaseRoutes
from server.admin.ledger_routes import LedgerRoutes
from server.admin.link_routes import LinkRoutes
from server.admin.refusals import Lasting
from server.admin.verify_routes import VerifyRoutes
from server.config.listeners.addresses import HTTP
from server.coordination.checkpoint_upkeep import checkpoint_facts
from server.coordination.groups.group_facts import group_facts
from server.coordination.transactions.transaction_facts import transaction_facts
from server.keys.key_routes import KeyRoutes
from server.live_records.record_routes import RecordRoutes, Served
from server.lookup.change_routes import ChangeRoutes
from server.lookup.configured_registry import value_decoding_of
from server.lookup.key_lookups import KeyLookups
from server.lookup.lookup_routes import LookupRoutes
from server.metadata.followers import copies_of
from server.net.listener import ListenError
from server.runtime.release import release
from server.snapshots.snapshot_routes import SnapshotRoutes
from server.topics.topic import INTERNAL_TOPICS
from storage.counts.log_counts import estimated_between
from storage.threads import any_thread

LOGS_PER_YIELD = 50
"""A scrape surveys this many logs before it offers the interpreter to the event loop."""

if TYPE_CHECKING:
    from server.admin.compaction import Compaction
    from server.broker import Broker
    from server.net.http_tls import HttpTls
    from storage.log.log import PartitionLog


async def open_http(broker: Broker) -> tuple[HttpEndpoint, int]:
    """Open the HTTP endpoint; returns it and its port.

    Raises:
        ListenError: the address is in use or does not belong to this machine.
    """
    config = broker.config
    address = config.resolved_http_listener()
    assert address is not None
    tls = http_tls(broker)
    broker.decoding = await value_decoding_of(config, broker.executors)
    access = HttpAccess(
        address.as_listener().bind,
        broker.audit,
        logins=lambda: http_logins(broker),
        authorizer=lambda: broker.authorizer,
        authenticates=config.http_authenticates,
        has_public_metrics=config.http_metrics_public,
    )
    hosts = OurHosts(broker)
    backlogs = Backlogs()
    collector = BrokerCollector(
        broker.probe,
        broker.cleaner_counts,
        broker=lambda: broker_facts(broker),
        partitions=lambda: partition_facts(broker, backlogs),
        partitions_listed_max=broker.config.metrics_partitions_max,
        groups=lambda: (
            group_facts(broker.groups.table, broker.readable_topics) if broker.has_storage else ()
        ),
    )
    routes = CompactionRoutes(
        lambda: compaction_of(broker),
        broker.pass_history,
        upkeep=broker.executors.upkeep,
    )
    erasures = ErasureRoutes(lambda: compaction_of(broker), broker.clock)
    leases = LeaseRoutes(
        lambda: compaction_of(broker),
        administration=broker.executors.administration,
        needs_token=not config.http_authenticates,
    )
    ledger = LedgerRoutes(lambda: compaction_of(broker), reads=broker.executors.ledgers)
    keys = KeyRoutes(lambda: compaction_of(broker), upkeep=broker.executors.upkeep)
    lookups = LookupRoutes(
        lambda: broker.topics if broker.has_storage else why_not(broker),
        lambda: broker.readable_topics.snapshots,
        KeyLookups(broker.key_tables, broker.turns),
        broker.fetch_waiters,
        broker.turns,
        encoding=broker.executors.key_lookups,
        decoding=broker.decoding,
    )
    changes = ChangeRoutes(
        lambda: broker.topics if broker.has_storage else why_not(broker),
        broker.view_reads,
        broker.fetch_waiters,
        broker.turns,
        encoding=broker.executors.key_lookups,
        decoding=broker.decoding,
    )
    records = RecordRoutes(
        partial(served_of, broker), broker.turns, counting=broker.executors.record_counts
    )
    followers = FollowerRoutes(
        lambda: metadata_of(broker), broker.followers, partial(end_of, broker)
    )
    snapshots = SnapshotRoutes(
        lambda: broker.snapshots if broker.snapshots is not None else why_not(broker)
    )
    links = LinkRoutes(lambda: broker.links or why_not(broker))
    verify = VerifyRoutes(lambda: broker.verifications if broker.links else why_not(broker))
    endpoint = HttpEndpoint(
        Scraper(collector),
        not_ready=lambda: broker.not_ready,
        run_in_thread=broker.executors.scrapes.run,
        guard=lambda request: refusal(
            request.headers.get("Host"), request.headers.get("Origin"), hosts.now()
        ),
        access=access.check,
        tls=tls,
        routes=[
            *routes.routes(),
            *leases.routes(),
            *ledger.routes(),
            *erasures.routes(),
            *keys.routes(),
            *lookups.routes(),
            *changes.routes(),
            *records.routes(),
            *followers.routes(),
            *snapshots.routes(),
            *links.routes(),
            *verify.routes(),
        ],
    )
    try:
        return endpoint, await endpoint.open(address.host, address.port)
    except OSError as error:
        await endpoint.close()
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error


def http_tls(broker: Broker) -> HttpTls | None:
    """Returns the TLS of the endpoint; None if it has none."""
    listener = broker.listening.tls_of(HTTP)
    if listener is None:
        return None
    from server.net.http_tls import HttpTls

    return HttpTls(listener, broker.warnings, broker.probe)


def http_logins(broker: Broker) -> HttpLogins | None:
    """Returns the logins of the endpoint's clients; None while the broker starts."""
    if not broker.has_acls:
        return None
    return HttpLogins(
        broker.logins.listeners.get(HTTP), broker.logins, broker.listening.tls_of(HTTP)
    )


def compaction_of(broker: Broker) -> Compaction | str:
    """Returns the object that controls the cleaner, or a sentence that says why there is none."""
    if not broker.config.cleans:
        return "the cleaner is off: log.cleaner.enable=false"
    return broker.compaction or why_not(broker)


def served_of(broker: Broker) -> Served | str:
    """Returns whose records are counted, or a sentence that says why there are none."""
    if not broker.has_storage:
        return why_not(broker)
    return Served(
        broker.topics, broker.readable_topics, broker.groups.table, broker.node.cluster_id
    )


def metadata_of(broker: Broker) -> Leading | str:
    """Returns what leads the metadata's log, or a sentence that says why there is none."""
    if not broker.has_storage:
        return why_not(broker)
    return Leading(broker.node.cluster_id, broker.metadata_log)


def why_not(broker: Broker) -> str:
    """Returns a sentence that says why the broker does not do what a request asks for."""
    if broker.fence is not None and broker.is_fenced:
        return Lasting(broker.fence.reason)
    return f"the broker is not ready: {broker.not_ready or 'starting'}"


class OurHosts:
    """The host names, in lower case, that a request's Host header may carry.

    They are kept from request to request, because they change only with the listeners.
    """

    __slots__ = ("_addresses", "_broker", "_names", "_own")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        address = broker.config.resolved_http_listener()
        own = {socket.gethostname(), *broker.config.http_hosts}
        self._own = own | ({address.host} if address else set())
        self._addresses: dict[str, tuple[str, int]] | None = None
        self._names: frozenset[str] = frozenset()

    def now(self) -> frozenset[str]:
        addresses = self._broker.addresses
        if addresses != self._addresses:
            advertised = {host for host, _ in addresses.values()}
            self._names = frozenset(host.lower() for host in advertised | self._own if host)
            self._addresses = dict(addresses)
        return self._names


@any_thread
def broker_facts(broker: Broker) -> BrokerFacts:
    """Returns the facts about the broker that a scrape shows."""
    if not broker.has_storage:
        return BrokerFacts(
            version=release(),
            is_ready=False,
            partitions_by_topic={},
            partitions_offline=0,
            log_directories=(),
            directories_offline=0,
            recovery=broker.recovery,
        )
    topics = broker.topics.all()
    return BrokerFacts(
        version=release(),
        is_ready=broker.not_ready is None,
        is_fenced=broker.is_fenced,
        partitions_by_topic={topic.name: len(topic.partitions) for topic in topics},
        partitions_offline=sum(
            log.offline_reason is not None for topic in topics for log in topic.partitions
        ),
        log_directories=tuple(
            each.path for each in broker.directories if each.offline_reason is None
        ),
        directories_offline=len(broker.directories_left_out)
        + sum(each.offline_reason is not None for each in broker.directories),
        recovery=broker.recovery,
        dead_cleaner_workers=broker.dead_cleaner_workers,
        stalled_cleaner_tasks=broker.stalled_cleaner_tasks,
        cleaner_ledger_breaks=broker.cleaner_ledger_breaks,
        coordinator_partitions=_coordinator_partitions(broker),
        slots_invalidated=broker.groups.holds.invalidated_total,
        transactions=transaction_facts(broker.transactions),
        loop=broker.loop_facts,
        key_lookups=broker.key_table_facts(),
        views=broker.view_reads.facts(),
        snapshots=SnapshotFacts() if broker.snapshots is None else broker.snapshots.facts(),
        quotas=quota_facts(broker),
        fetch_sessions=FetchSessionFacts(
            sessions=len(broker.fetch_sessions),
            partitions=broker.fetch_sessions.partitions_count,
            evictions_total=broker.fetch_sessions.evictions,
        ),
        replogs=broker.metadata_facts(),
        followers=follower_facts(broker),
        links={} if broker.links is None else broker.links.facts(),
        checkpoints={
            (each.topic.name, str(partition)): facts
            for each in (broker.groups, broker.transactions)
            for partition, facts in checkpoint_facts(each.topic)
        },
        certificates_expire_seconds={
            name: expires_at.timestamp() - broker.clock.now_ms() / 1000
            for name, expires_at in broker.listening.certificate_expiries().items()
        },
        erasures=None if broker.compaction is None else broker.compaction.erasures.facts(),
        node_id=broker.node.node_id,
        address=next((f"{host}:{port}" for host, port in broker.addresses.values()), ""),
    )


def _coordinator_partitions(broker: Broker) -> dict[str, dict[str, int]]:
    if broker.fence is not None:
        return {}  # It coordinates nothing.
    return {
        each.topic.name: each.table.loads.by_state(each.topic.partitions_count)
        for each in (broker.groups, broker.transactions)
    }


@any_thread
def end_of(broker: Broker, topic_name: str, partition: int) -> int:
    """Returns where the log of an existing partition ends; 0 if there is none."""
    topic = broker.topics.get(topic_name)
    log = ErrorCode.NONE if topic is None else topic.partition(partition)
    return 0 if isinstance(log, ErrorCode) else log.log_end_offset


@any_thread
def follower_facts(broker: Broker) -> tuple[FollowerFacts, ...]:
    """Returns the facts about followers."""
    end, now_s = broker.metadata_log.log_end, broker.clock.monotonic()
    return tuple(
        FollowerFacts(
            id=each.id,
            lag_entries=max(0, end - each.end),
            seen_seconds_ago=now_s - each.seen_s,
            installs=each.installs,
            copies=[
                FollowedTopicFacts(
                    name=copy.name,
                    lag_offsets=copy.lag,
                    seen_seconds_ago=copy.seen_seconds_ago,
                    checkpoints=copy.checkpoints,
                )
                for copy in copies_of(each, partial(end_of, broker), now_s)
            ],
        )
        for each in broker.followers.all()
    )


@any_thread
def quota_facts(broker: Broker) -> QuotaFacts:
    """Returns the facts about quotas; of the clients only those that were active last."""
    listed_max, now_ms = broker.config.metrics_partitions_max, broker.clock.monotonic() * 1000
    return QuotaFacts(
        entities_count=broker.quota_store.entities_count,
        uses=broker.quotas.uses(listed_max, now_ms) if listed_max else {},
    )


@any_thread
def partition_facts(broker: Broker, backlogs: Backlogs) -> Iterator[PartitionFacts]:
    """Yields the facts about each online partition. One thread at a time."""
    if not broker.has_storage:
        return
    now_ms = broker.clock.now_ms()
    paths = {each.directory_id: each.path for each in broker.directories}
    logs = (log for topic in broker.topics.all() for log in topic.logs())
    online = (log for log in logs if log.offline_reason is None)
    compaction = broker.compaction
    found = (
        backlogs.survey(online, now_ms)
        if compaction is None
        else backlogs.survey(online, now_ms, compaction.pool.remainder_above_fences)
    )
    for number, (log, backlog) in enumerate(found):
        if number % LOGS_PER_YIELD == 0:
            # Releases the GIL, so that the event loop can run.
            time.sleep(0)
        reclaimable = None if compaction is None else compaction.pool.reclaimable_of(log)
        yield _facts_of(log, backlog, reclaimable, now_ms, paths[log.identity.directory_id])


def _facts_of(
    log: PartitionLog,
    backlog: Backlog | None,
    reclaimable: Reclaimable | None,
    now_ms: int,
    log_directory: str,
) -> PartitionFacts:
    segments = log.segments
    return PartitionFacts(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        log_directory=log_directory,
        log_start_offset=log.log_start_offset,
        # Read before the high watermark: it must not exceed that, and both advance meanwhile.
        last_stable_offset=stable_offset(log),
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        size_bytes=sum(segment.size for segment in segments),
        segments_count=len(segments),
        is_internal=log.topic_partition.topic in INTERNAL_TOPICS,
        clean_offset=None if backlog is None else log.clean_offset,
        backlog=backlog,
        overdue_ms=0 if backlog is None else backlog.overdue_ms(now_ms),
        reclaimable_bytes=None if reclaimable is None else reclaimable.bytes,
        reclaimable_error_bytes=None if reclaimable is None else reclaimable.bytes_error,
        records=None if backlog is None else _records_of(log),
        kept_bytes=log.kept_bytes,
    )


def _records_of(log: PartitionLog) -> int:
    return estimated_between(log.segments, log.log_start_offset, log.high_watermark)
