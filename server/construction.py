"""Builds the parts of a broker from its configuration. `broker.py` starts and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from cleaner.pacing.throttle import Throttle
from server.coordination.checkpoint_offers import CheckpointOffers
from server.coordination.checkpoint_upkeep import CheckpointedTopic, CheckpointUpkeep
from server.coordination.groups.coordinator import GroupCoordinator, coordinator_of
from server.coordination.groups.offset_commands import OffsetCommands
from server.coordination.transactions.coordinator import TransactionCoordinator, transactions_of
from server.dispatch import Dispatcher
from server.durability.group_commit import GroupCommit
from server.durability.log_clock import Duty, checkpoint_duty, retention_duty, roll_duty, undo_duty
from server.net.answer_sender import AnswerSender
from server.net.listener import ListenError, Listeners, SocketOptions
from server.net.shared import Shared
from server.security.sasl.logins import Logins
from server.shortcut.plain import PlainRequests
from server.topics.stores import MetadataStores
from server.topics.topic import TopicDefaults
from server.topics.topics import Topics
from storage.log.sync_rounds import SyncRounds

if TYPE_CHECKING:
    from server.broker import Broker
    from server.lookup.key_tables import KeyTables
    from server.snapshots.snapshots import Snapshots
    from server.standby.peers import Peers


def logins_of(broker: Broker) -> Logins:
    """Returns the logins of SASL listeners, which check the passwords of `broker.scram`."""
    return Logins(
        broker.config.resolved_sasl_listeners(),
        broker.scram,
        broker.executors,
        broker.clock,
        failure_delay_ms=broker.config.connection_failed_authentication_delay_ms,
    )


async def peers_of(broker: Broker) -> Peers | None:
    """Returns the brokers that may have taken over; None if there are none. Raises ListenError."""
    config = broker.config
    if not config.standby_peers:
        return None
    # Imported here: a broker without peers starts without a client.
    from server.client.errors import Misconfigured
    from server.standby.peers import Peers, access_to_peers

    try:
        access = await broker.executors.upkeep.run(access_to_peers, config.standby_peers_config)
    except Misconfigured as error:
        raise ListenError(f"standby.peers.config: {error}") from error
    return Peers(
        addresses=config.standby_peers,
        access=access,
        cluster_id=broker.node.cluster_id,
        own_term=broker.metadata_log.term,
    )


def group_commit_of(broker: Broker, sync_rounds: SyncRounds) -> GroupCommit:
    """Returns what syncs the logs of `sync_rounds` and advances their high watermarks."""
    return GroupCommit(
        sync_rounds,
        broker.fetch_waiters,
        flush_on_acks_all=broker.config.flush_on_acks_all,
        probe=broker.probe,
    )


def topics_of(broker: Broker, stores: MetadataStores) -> Topics:
    """Returns the topics of the stores, not yet opened."""
    config = broker.configs.config
    return Topics(
        stores.cluster,
        stores.node,
        broker.directories,
        files=broker.files,
        defaults=TopicDefaults(
            config=config.log_defaults,
            partitions_count=broker.config.num_partitions,
            partitions_max=broker.config.partitions_max,
        ),
        administration=broker.executors.administration,
        removals=broker.executors.removals,
        on_removed=broker.log_removed,
        recovery_threads=config.num_recovery_threads_per_data_dir,
        progress=broker.recovery,
        has_all_directories=not broker.directories_left_out,
    )


def groups_of(broker: Broker) -> GroupCoordinator:
    """Returns the coordinator of groups."""
    return coordinator_of(
        broker.topics,
        broker.readable_topics,
        broker.group_commit,
        broker.configs.config,
        clock=broker.clock,
        own_times=broker.group_overrides.times,
        loading=broker.executors.loading,
        assigning=broker.executors.assigning,
    )


def offsets_of(broker: Broker) -> OffsetCommands:
    """Returns the requests about committed offsets, over `broker.groups`."""
    return OffsetCommands(
        broker.groups,
        retention_ms=broker.config.offsets_retention_minutes * 60_000,
        check_interval_ms=broker.config.offsets_retention_check_interval_ms,
        turns=broker.turns,
        administration=broker.executors.administration,
    )


def transaction_coordinator_of(broker: Broker) -> TransactionCoordinator:
    """Returns the coordinator of transactions, which ends those of `broker.offsets`."""
    return transactions_of(
        broker.topics,
        broker.group_commit,
        broker.configs.config,
        clock=broker.clock,
        producer_ids=broker.producer_ids,
        offsets_ended=broker.offsets.transaction_ended,
        turns=broker.turns,
        loading=broker.executors.loading,
    )


def key_tables_of(broker: Broker) -> KeyTables:
    """Returns the tables by which keys are looked up. Import their module before: it takes a while."""
    from server.lookup.key_tables import KeyTables

    return KeyTables(
        broker.executors.key_lookups,
        broker.files,
        settings=lambda: broker.configs.config.cleaner_settings(),
        bytes_max=lambda: broker.configs.config.key_lookup_bytes_max,
        monotonic=broker.clock.monotonic,
    )


def snapshots_of(broker: Broker, stores: MetadataStores) -> Snapshots:
    """Returns the snapshots. Import their module before: it takes a while."""
    from server.snapshots.making import Sources
    from server.snapshots.snapshots import Snapshots
    from storage.snapshots.snapshot_files import SnapshotFiles

    async def forget_offsets(topics: AbstractSet[str]) -> None:
        views = broker.readable_topics.names_of_views(topics)
        await broker.offsets.expiry.topics_deleted({*topics, *views})

    metadata = broker.config.metadata_directory
    paths = [each.path for each in broker.directories]
    return Snapshots(
        Sources(
            files=SnapshotFiles(broker.files, paths, metadata_directory=metadata),
            topics=broker.topics,
            stores=stores,
            directories=broker.directories,
            metadata_directory=metadata,
            node=broker.node,
            clock=broker.clock,
            thread=broker.executors.snapshots,
            turns=broker.turns,
        ),
        broker.readable_topics.snapshots,
        forget_offsets,
    )


def listeners_of(broker: Broker) -> Listeners:
    """Returns the listeners, not yet opened."""
    config = broker.config
    shared = Shared(
        dispatch=Dispatcher(broker),
        limits=broker.listening.limits,
        memory=broker.requests,
        answers=broker.answers,
        sender=AnswerSender(broker.turns, loop=asyncio.get_running_loop()),
        turns=broker.turns,
        cold_reads=broker.cold_reads,
        probe=broker.probe,
        warnings=broker.warnings,
        connections=set(),
        frame_bytes_max=config.socket_request_max_bytes,
        logins=broker.logins if broker.logins.listeners else None,
        rates=broker.listening.rates,
        shortcut=PlainRequests(broker),
    )
    return Listeners(
        shared,
        idle_ms=config.connections_max_idle_ms,
        first_request_ms=config.connections_first_request_timeout_ms,
        options=SocketOptions(
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        ),
    )


def duties_of(broker: Broker) -> list[Duty]:
    """Returns the duties that the log clock performs on every log."""
    config = broker.config
    duties = [
        roll_duty(config.log_roll_check_interval_ms),
        checkpoint_duty(config.log_flush_offset_checkpoint_interval_ms),
        retention_duty(config.log_retention_check_interval_ms, broker.clock, broker.probe),
        undo_duty(config.log_retention_check_interval_ms, broker.clock),
    ]
    if not config.flush_on_acks_all:
        interval_ms = config.log_flush_scheduler_interval_ms
        look = broker.group_commit.flush_if_due
        duties.append(Duty(name="flush", interval_ms=interval_ms, look=look))
    return duties


def checkpoint_upkeep_of(broker: Broker, throttle: Throttle | None) -> CheckpointUpkeep:
    """Returns what makes the checkpoints of the coordinators' partitions.

    Args:
        throttle: the cleaner's; None if there is no cleaner, then one with the same limits.
    """
    cleaner = broker.configs.config.cleaner_settings()
    is_loading = broker.fence is None
    return CheckpointUpkeep(
        [
            CheckpointedTopic(each.topic, each.table.loads if is_loading else None)
            for each in (broker.groups, broker.transactions)
        ],
        broker.config.compaction_settings(),
        broker.executors.checkpoints,
        throttle=throttle or Throttle(cleaner.io_rates, clock=broker.clock.monotonic),
        memory_bytes=cleaner.map_bytes,
        offers=CheckpointOffers(broker.executors.lookups, clock=broker.clock.monotonic),
    )
