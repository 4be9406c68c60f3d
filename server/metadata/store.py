"""The store of the cluster's metadata: topics, their configuration, blocks of producer ids.

`MetadataStore` is the contract: a map from text to text under one revision counter, with prefixes,
conditional transactions, watches and leases. It is a subset of etcd's, so that a distributed store can
replace the embedded one (`server/metadata/embedded_store.py`).

    revision 5: put /topics/orders           a transaction that changes something takes the next
    revision 6: delete /topics/orders        revision; all its changes carry that one
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from storage.files.errors import NoSpace

_log = logging.getLogger("server.metadata.store")

METADATA_TOPIC = "__cluster_metadata"
"""Kafka stores its metadata in this topic, so clients and tools treat the name specially."""
METADATA_TOPIC_ID = uuid.UUID(int=1)
"""Kafka's id of that topic (Uuid.METADATA_TOPIC_ID)."""


class RevisionCompacted(Exception):
    """A watch needs revisions that are no longer kept: read `range`, then start a new watch."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"changes before revision {oldest} are not kept")
        self.oldest = oldest


class LeaseNotFound(Exception):
    """The lease has expired or was revoked; the keys attached to it are gone."""

    def __init__(self, lease: int) -> None:
        super().__init__(f"lease {lease} does not exist")
        self.lease = lease


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A key with its value, and the revisions that created and last changed it.

    A struct, because a start makes one for each key.
    """

    key: str
    value: str
    create_revision: int
    mod_revision: int
    lease: int = 0
    """The lease that the key is attached to; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """Entries in key order, all as of one revision."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A condition: `key` was last changed at `mod_revision`, or, if that is 0, does not exist."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Sets a key; with a lease, the key is removed when the lease ends."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Removes a key; a missing one is no error."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnResult:
    """Whether all conditions held, and the store's revision after the transaction."""

    succeeded: bool
    revision: int


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The changes of one revision under a watched prefix: `entries` were set, `deleted` removed."""

    revision: int
    entries: tuple[Entry, ...]
    deleted: tuple[str, ...]


class MetadataStore(Protocol):
    """The contract of all stores. When a call returns, its effect is durable. If it raises StorageError,
    it has changed nothing or, if the disk's state is unknown, the store is out of service."""

    async def range(self, prefix: str) -> RangeResult:
        """Returns the entries whose keys begin with `prefix`."""

    async def get(self, key: str) -> Entry | None:
        """Returns the entry of a key; None if there is none."""

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TxnResult:
        """Apply all operations in order if every condition holds, else none.

        Raises:
            LeaseNotFound: a Put names a lease that does not exist; nothing was changed.
        """

    def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Change]:
        """Yields every change under `prefix` after a revision, in order and without gaps.

        Raises:
            RevisionCompacted: some of them are no longer kept.
        """

    async def grant(self, ttl_ms: int) -> int:
        """Create a lease that expires unless it is kept alive. Returns its id."""

    async def keep_alive(self, lease: int) -> None:
        """Restart the lease's time to live. Raises LeaseNotFound."""

    async def revoke(self, lease: int) -> None:
        """End a lease and remove the keys attached to it. Raises LeaseNotFound."""


async def write_unless_disk_full(store: MetadataStore, operations: Sequence[Put | Delete]) -> bool:
    """Write what a start has done, unless the disk is full: then the next start does it again.

    Returns whether it was written.

    Raises:
        StorageError: the store failed.
    """
    try:
        await store.txn((), operations)
    except NoSpace as error:
        _log.warning("disk full, postponed a write to the metadata until the next start: %s", error)
        return False
    return True
