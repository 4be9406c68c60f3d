"""Builds the links to other clusters. Imported once the listeners are open: a start does not wait for
it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from server.config.config import BrokerConfig
from server.metadata.features import SPARSE_LOG
from server.metadata.store import MetadataStore
from server.replication.acl_sync import AclSync
from server.replication.groups.local_groups import LocalGroups
from server.replication.link import Link
from server.replication.link_spec import LinkSpec
from server.replication.mirror_topics import MirrorTopics
from server.replication.replication import Replication
from server.replication.requests import FetchBounds
from server.replication.verify.verifications import Verifications, VerifySettings
from server.replication.writer import MirrorWriter
from server.standby.peers import is_fenced

if TYPE_CHECKING:
    from server.broker import Broker


def replication_of(
    broker: Broker, store: MetadataStore, *, standby: LinkSpec | None = None
) -> Replication:
    """Returns the links of the broker, not yet started.

    Args:
        standby: the link to the broker of which this one is a standby.
    """
    config = broker.config
    writer = MirrorWriter(
        broker.group_commit,
        broker.topics.make_files,
        broker.directories,
        files=broker.files,
        disk=broker.executors.administration,
        turns=broker.turns,
        now_ms=broker.clock.now_ms,
    )
    bounds = _fetch_bounds(config)
    mirrors = MirrorTopics(broker.topics)
    groups = LocalGroups(broker.offsets, broker.clock.now_ms)

    def link_of(spec: LinkSpec) -> Link:
        return Link(
            spec,
            mirrors,
            writer,
            groups,
            AclSync(
                spec.name,
                store,
                broker.acls,
                threads=broker.executors.administration,
                now_ms=broker.clock.now_ms,
            ),
            bounds=bounds,
            fetchers=config.num_replica_fetchers,
            cluster_id=broker.node.cluster_id,
            sparse_level=lambda: broker.features.levels[SPARSE_LOG],
            is_fenced=partial(is_fenced, cluster_id=broker.node.cluster_id),
            now_ms=broker.clock.now_ms,
            monotonic=broker.clock.monotonic,
        )

    return Replication(store, broker.topics, link_of, writer.finish_log, standby=standby)


def verifications_of(broker: Broker, replication: Replication) -> Verifications:
    """Returns the comparisons of the broker's mirrors with their sources."""
    config = broker.config
    settings = VerifySettings(
        bounds=_fetch_bounds(config),
        memory_bytes=config.replica_verify_memory_bytes,
        decompressed_bytes_max=config.log_cleaner_decompressed_batch_bytes_max,
    )
    return Verifications(replication, settings, thread=broker.executors.verification)


def _fetch_bounds(config: BrokerConfig) -> FetchBounds:
    return FetchBounds(
        wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
    )
