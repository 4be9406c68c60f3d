"""The merger of the metadata's state machine (`machine.py`): the row changes of its commands.

A put keeps the create revision of the entry that it replaces, and a revoked lease takes its keys with
it, so the change of a key depends on its row in the snapshot. What is held for a key is therefore its
last entry, and whether the create revision may come from there:

    put a                     comes from the snapshot, if the snapshot's entry still lived at the put
    delete a, put a           does not
    revoke 7, put a           comes from there, unless that entry had lease 7
    put a, revoke 7           comes from there, also if that entry had lease 7: it was replaced before

Revisions count up by one with each command, from that of the snapshot.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable

import msgspec

from replog.machine import Row
from replog.offline_merge.merger import Lookup
from server.metadata.machine import (
    ENTRY_KEY,
    LEASE_KEY,
    REVISION_KEY,
    Operation,
    decode_command,
    decode_number,
    entry_row,
    lease_row,
    revision_row,
)
from server.metadata.store import Entry

_CREATED_AND_LEASE = struct.Struct(">q8xq")
NEVER = float("inf")


class _Last(msgspec.Struct, gc=False):
    """The last entry of a key that the commands have changed."""

    entry: Entry | None
    """None: the key was removed. Its create revision is that of its first put, as far as is known."""
    replaced_at: int | None
    """The number of the operation that replaced the snapshot's entry, which decides the create
    revision; None if the key was removed in between."""


class MetadataMerger:
    """The changes of a run of commands."""

    def __init__(self, lookup: Lookup) -> None:
        revision = lookup(REVISION_KEY)
        # State: what the commands so far have changed.
        self._revision = decode_number(revision) if revision is not None else 0
        self._numbers = itertools.count()
        self._last: dict[bytes, _Last] = {}
        # Both by the keys of rows, so that no row of the snapshot must be decoded.
        self._keys_of_leases: dict[int, set[bytes]] = {}
        self._granted: dict[int, int] = {}
        self._revoked: dict[int, int] = {}
        """When each lease was revoked first: the number of the operation."""

    def add(self, index: int, command: bytes) -> None:
        """Take the next transaction."""
        self._revision += 1
        for operation in decode_command(command):
            self._add(next(self._numbers), operation)

    def keys(self) -> Iterable[bytes]:
        """Returns the keys of entries, leases and the revision."""
        yield from self._last
        yield from (_lease_key(lease) for lease in self._granted)
        yield REVISION_KEY

    def value_after(self, key: bytes, before: bytes | None) -> bytes | None:
        """Returns the value of a row after all transactions."""
        kind = key[:1]
        if kind == ENTRY_KEY:
            return self._entry_after(key, before)
        if kind == LEASE_KEY:
            lease = decode_number(key[1:])
            ttl_ms = self._granted.get(lease)
            if ttl_ms is not None:
                return _value(lease_row(lease, ttl_ms))
            return None if lease in self._revoked else before
        assert key == REVISION_KEY, f"a row of a kind that is not known: {key!r}"
        return _value(revision_row(self._revision))

    # The commands.

    def _add(self, number: int, operation: Operation) -> None:
        verb, *arguments = operation
        if verb == "put":
            self._put(number, *arguments)
        elif verb == "delete":
            self._remove(ENTRY_KEY + arguments[0].encode())
        elif verb == "grant":
            lease, ttl_ms = arguments
            self._granted[lease] = ttl_ms
        elif verb == "revoke":
            self._revoke(number, arguments[0])
        else:
            raise AssertionError(f"unknown operation {verb} in the metadata log")

    def _put(self, number: int, key: str, value: str, lease: int) -> None:
        row = ENTRY_KEY + key.encode()
        last = self._last.get(row)
        before = last.entry if last is not None else None
        created = before.create_revision if before is not None else self._revision
        entry = Entry(
            key=key,
            value=value,
            create_revision=created,
            mod_revision=self._revision,
            lease=lease,
        )
        if before is not None:
            self._unlink(row, before)
        if lease:
            self._keys_of_leases.setdefault(lease, set()).add(row)
        self._last[row] = _Last(entry, last.replaced_at if last is not None else number)

    def _remove(self, row: bytes) -> None:
        last = self._last.get(row)
        if last is not None and last.entry is not None:
            self._unlink(row, last.entry)
        self._last[row] = _Last(None, None)

    def _revoke(self, number: int, lease: int) -> None:
        self._granted.pop(lease, None)
        self._revoked.setdefault(lease, number)
        for row in list(self._keys_of_leases.get(lease, ())):
            self._remove(row)

    def _unlink(self, row: bytes, entry: Entry) -> None:
        if entry.lease:
            self._keys_of_leases[entry.lease].discard(row)

    # The rows.

    def _entry_after(self, key: bytes, before: bytes | None) -> bytes | None:
        last = self._last.get(key)
        if last is None:
            # The snapshot's entry, which a revoked lease may have taken.
            assert before is not None
            return None if self._revoked and self._lives_until(before) < NEVER else before
        if last.entry is None:
            return None
        entry, replaced_at = last.entry, last.replaced_at
        if before is None or replaced_at is None or self._lives_until(before) <= replaced_at:
            return _value(entry_row(entry))
        created, _ = _CREATED_AND_LEASE.unpack_from(before)
        return _value(entry_row(msgspec.structs.replace(entry, create_revision=created)))

    def _lives_until(self, value: bytes) -> float:
        """Returns when the lease of the snapshot's entry was revoked."""
        _, lease = _CREATED_AND_LEASE.unpack_from(value)
        return self._revoked.get(lease, NEVER)


def _lease_key(lease: int) -> bytes:
    key, _ = lease_row(lease, 0)
    return key


def _value(row: Row) -> bytes:
    _, value = row
    return value
