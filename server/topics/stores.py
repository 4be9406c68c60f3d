"""Opens the metadata stores: one has the facts of the cluster, the other those of this node.

Another process may follow the cluster's facts, so what is true on one machine only is not among them.
Both are in the metadata directory, each with its own log (`server/metadata/embedded_store.py`):

    metadata/    topics and their configuration, users, ACLs, quotas, producer ids, pauses
    node/        where this node has the logs of topics (`keys.py`), the properties set on this broker
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from replog.trigger import CompactionSettings
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import MetadataStore
from server.topics.migration import has_counted_topics, move_node_facts
from storage.files.errors import MissingNodeMetadata, StorageError
from storage.files.files import FileSystem
from storage.files.paths import METADATA, NODE_METADATA, join


class MetadataStores(NamedTuple):
    """The open stores."""

    cluster: EmbeddedMetadataStore
    node: EmbeddedMetadataStore

    async def close(self) -> None:
        """Finish running changes and close the files."""
        await self.node.close()
        await self.cluster.close()


async def open_stores(
    files: FileSystem,
    directory: str,
    settings: CompactionSettings,
    *,
    node_config_key: str | None = None,
    any_topic: Callable[[], str | None] = lambda: None,
    on_failure: Callable[[StorageError], None] = lambda _: None,
    is_quiet: Callable[[], bool] = lambda: False,
    term_min: int = 1,
) -> MetadataStores:
    """Open the stores in the metadata directory, creating them if they are new.

    The store of an earlier release, which had both kinds of facts, is split.

    Args:
        node_config_key: the key of the properties that are set on this node, if there may be some.
        any_topic, on_failure, is_quiet: as for `EmbeddedMetadataStore.open`.
        term_min: the least term in which the cluster's store leads.

    Raises:
        MissingMetadata: there are topics' files, but the cluster's store is new.
        MissingNodeMetadata: there are topics, but the node's store does not exist.
        StorageError: files are damaged, were written by a later release, or cannot be read or written.
    """
    cluster = await EmbeddedMetadataStore.open(
        files,
        join(directory, METADATA),
        settings,
        on_failure=on_failure,
        any_topic=any_topic,
        is_quiet=is_quiet,
        term_min=term_min,
    )
    path = join(directory, NODE_METADATA)
    try:
        await _check_node_metadata(files, path, cluster)
        node = await EmbeddedMetadataStore.open(
            files, path, settings, on_failure=on_failure, is_quiet=is_quiet
        )
    except BaseException:
        await cluster.close()
        raise
    stores = MetadataStores(cluster, node)
    try:
        await move_node_facts(cluster, node, node_config_key=node_config_key)
    except BaseException:
        await stores.close()
        raise
    return stores


async def _check_node_metadata(files: FileSystem, path: str, cluster: MetadataStore) -> None:
    if not files.exists(path) and await has_counted_topics(cluster):
        raise MissingNodeMetadata(path)
