"""Where the cluster's facts live: topics, their configuration, blocks of producer ids.

`MetadataStore` is the contract: a map from text to text under one revision counter, with
prefixes, transactions that compare first, watches and leases. It is a part of etcd's, so that
a store of many machines can stand in the place of the embedded one (`server/embedded_store.py`).

    revision 5: put /topics/orders           a transaction that changes something takes the next
    revision 6: delete /topics/orders        revision; all its changes carry that one
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.errors import NoSpace

_log = logging.getLogger("server.metadata_store")


class RevisionCompacted(Exception):
    """A watch asked for, or fell behind, revisions that are gone: read `range`, then watch anew."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"changes before revision {oldest} are not kept")
        self.oldest = oldest


class LeaseNotFound(Exception):
    """The lease has run out or was revoked; what was attached to it is gone."""

    def __init__(self, lease: int) -> None:
        super().__init__(f"lease {lease} does not exist")
        self.lease = lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key's value and its history in numbers."""

    key: str
    value: str
    create_revision: int
    mod_revision: int
    lease: int = 0
    """The lease that it goes with, 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """Entries in the order of their keys, all as of one revision."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Holds while `key` was last changed at `mod_revision`; 0: while it does not exist."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Set a key; with a lease, the key goes when the lease does."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove a key; a missing one is fine."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnResult:
    """Whether all comparisons held, and the store's revision after the transaction."""

    succeeded: bool
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one revision did to keys of a watched prefix; `entries` were set, `deleted` removed."""

    revision: int
    entries: tuple[Entry, ...]
    deleted: tuple[str, ...]


class MetadataStore(Protocol):
    """What every driver offers. A call that returns has its effect on disk; one that raises
    StorageError changed nothing, or, where the disk's state is unknown, ended the store's use."""

    async def range(self, prefix: str) -> RangeResult:
        """The entries whose keys begin with `prefix`."""

    async def get(self, key: str) -> Entry | None:
        """One entry."""

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TxnResult:
        """Carry out all operations in order if every comparison holds, else none.

        Raises:
            LeaseNotFound: a Put names a lease that is gone; nothing was changed.
        """

    def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Change]:
        """Every change under `prefix` after a revision, in order, none left out.

        Raises:
            RevisionCompacted: some of them are not kept any more.
        """

    async def grant(self, ttl_ms: int) -> int:
        """A new lease, which runs out unless it is kept alive."""

    async def keep_alive(self, lease: int) -> None:
        """Let the lease's time begin anew. Raises LeaseNotFound."""

    async def revoke(self, lease: int) -> None:
        """End a lease and remove what is attached to it. Raises LeaseNotFound."""


async def note_if_there_is_space(store: MetadataStore, operations: Sequence[Put | Delete]) -> bool:
    """Write down what a start has done, unless the disk is full: then the next start does it again.

    Returns whether it is written.

    Raises:
        StorageError: the store failed.
    """
    try:
        await store.txn((), operations)
    except NoSpace as error:
        _log.warning("put off until the next start: %s", error)
        return False
    return True
