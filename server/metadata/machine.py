"""The state machine of the metadata store: the map from text to text, its leases, its revision.

A command is a JSON object in UTF-8; readers ignore members that they do not know:

    {"operations": [["put", key, value, lease], ["delete", key],
                    ["grant", lease, ttl_ms], ["revoke", lease]]}

A snapshot has these rows, in the order of their keys:

    "e" key in UTF-8     create revision: int64 | mod revision: int64 | lease: int64 | value in UTF-8
    "l" lease: int64     time to live in ms: int64
    "r"                  revision: int64

Each command takes the next revision. Lease 0 is none.
"""

from __future__ import annotations

import bisect
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from replog.checkpoint_format import row_bytes
from replog.digest import replaced, row_digest
from replog.machine import Row
from server.metadata.store import Change, Entry

HISTORY_REVISIONS_MAX = 10_000
"""The most revisions that are kept for watches that start in the past."""
ELEMENTS_ENCODED_AT_ONCE = 256

Operation = list[Any]
"""A transaction's step in the form it has in the log."""

_ENTRY = struct.Struct(">qqq")
_NUMBER = struct.Struct(">q")
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
ENTRY_KEY, LEASE_KEY, REVISION_KEY = b"e", b"l", b"r"


def encode_command(operations: Sequence[Operation]) -> bytes:
    """Returns the command that has these operations."""
    # In portions: the encoder holds the interpreter for each.
    size = ELEMENTS_ENCODED_AT_ONCE
    portions = (operations[start : start + size] for start in range(0, len(operations), size))
    return b'{"operations":[%b]}' % b",".join(
        msgspec.json.encode(portion)[1:-1] for portion in portions
    )


def decode_command(command: bytes) -> list[Operation]:
    """Returns the operations of a command."""
    operations: list[Operation] = msgspec.json.decode(command)["operations"]
    return operations


def entry_row(entry: Entry) -> Row:
    """Returns the row of an entry."""
    numbers = _ENTRY.pack(entry.create_revision, entry.mod_revision, entry.lease)
    return ENTRY_KEY + entry.key.encode(), numbers + entry.value.encode()


def lease_row(lease: int, ttl_ms: int) -> Row:
    """Returns the row of a lease."""
    return LEASE_KEY + _NUMBER.pack(lease), _NUMBER.pack(ttl_ms)


def revision_row(revision: int) -> Row:
    """Returns the row of the revision."""
    return REVISION_KEY, _NUMBER.pack(revision)


def decode_entry(key: bytes, value: bytes) -> Entry:
    """Returns the entry of a row."""
    created, modified, lease = _ENTRY.unpack_from(value)
    return Entry(
        key=key[1:].decode(),
        value=value[_ENTRY.size :].decode(),
        create_revision=created,
        mod_revision=modified,
        lease=lease,
    )


def decode_number(data: bytes) -> int:
    """Returns the number in the key or the value of a lease's or the revision's row."""
    number: int = _NUMBER.unpack(data)[0]
    return number


class _Put(msgspec.Struct, array_like=True, tag="put", forbid_unknown_fields=True):
    key: str
    value: str
    lease: _Number


class _Delete(msgspec.Struct, array_like=True, tag="delete", forbid_unknown_fields=True):
    key: str


class _Grant(msgspec.Struct, array_like=True, tag="grant", forbid_unknown_fields=True):
    lease: _Number
    ttl_ms: _Number


class _Revoke(msgspec.Struct, array_like=True, tag="revoke", forbid_unknown_fields=True):
    lease: _Number


class _Command(msgspec.Struct):
    operations: list[_Put | _Delete | _Grant | _Revoke]


_COMMANDS = msgspec.json.Decoder(_Command)


def fault_of_command(command: bytes) -> str | None:
    """Returns why `apply` cannot apply a command; None if it can."""
    try:
        _COMMANDS.decode(command)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return str(error)
    return None


class ChangeHistory:
    """The changes of the last revisions, for watches that start in the past."""

    __slots__ = ("_changes", "oldest")

    def __init__(self, revision: int) -> None:
        self._changes: deque[Change] = deque()
        self.oldest = revision + 1
        """The first revision whose change is kept, or will be."""

    def append(self, change: Change) -> None:
        """Keep the change of the next revision."""
        self._changes.append(change)
        if len(self._changes) > HISTORY_REVISIONS_MAX:
            self._changes.popleft()
            self.oldest += 1
        assert self.oldest + len(self._changes) == change.revision + 1, "revisions count up by one"

    def at(self, revision: int) -> Change:
        """Returns the change of a revision that is kept."""
        return self._changes[revision - self.oldest]


@dataclass(frozen=True, slots=True)
class LargeChange:
    """The effect of a large transaction, computed beside the machine."""

    change: Change
    keys: list[str]
    """The map's keys after it, in their order."""
    digest: int
    size: int


class MetadataMachine:
    """The map at one revision. One thread at a time; a snapshot's rows may be read in another."""

    __slots__ = (
        "_digest", "_is_replaying", "_size", "_uncounted", "entries", "history", "keys", "leases",
        "revision",
    )  # fmt: skip

    def __init__(self) -> None:
        self.revision = 0
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []
        """The keys of `entries`, in order."""
        self.leases: dict[int, int] = {}
        """The time to live of each lease, in ms."""
        self.history = ChangeHistory(0)
        # Of the rows of entries and leases: the revision's row is added when asked.
        self._digest = 0
        self._size = 0
        # The entries that both still count instead of those that replaced them, by key. Only a replay
        # leaves some: it may change a key many times, and its last entry is counted once.
        self._uncounted: dict[str, Entry | None] = {}
        self._is_replaying = False

    def apply(self, index: int, command: bytes) -> None:
        """Apply a logged transaction."""
        self._is_replaying = True
        try:
            self.run(decode_command(command))
        finally:
            self._is_replaying = False

    def run(self, operations: Sequence[Operation]) -> None:
        """Apply one transaction, which takes the next revision."""
        changed: dict[str, Entry | None] = {}
        self.revision += 1
        for verb, *arguments in operations:
            if verb == "put":
                self._set(changed, *arguments)
            elif verb == "delete":
                self._remove(changed, arguments[0])
            elif verb == "grant":
                self._grant(*arguments)
            elif verb == "revoke":
                self._revoke(changed, arguments[0])
            else:
                raise AssertionError(f"unknown operation {verb} in the metadata log")
        self._keep(_change(self.revision, changed))

    def prepared(self, operations: Sequence[Operation]) -> LargeChange:
        """Returns the effect of puts and deletions as the next transaction; changes nothing."""
        revision = self.revision + 1
        changed: dict[str, Entry | None] = {}
        for verb, key, *rest in operations:
            if verb == "put":
                before = changed[key] if key in changed else self.entries.get(key)
                value, lease = rest
                changed[key] = entry_after(before, key, value, lease, revision)
            else:
                assert verb == "delete", f"{verb} in a large transaction"
                changed[key] = None
        digest, size = self._counted()
        for key, entry in changed.items():
            digest, size = _replaced(digest, size, self.entries.get(key), entry)
        keys = [key for key in self.keys if changed.get(key, self.entries[key]) is not None]
        keys += [k for k, entry in changed.items() if entry is not None and k not in self.entries]
        keys.sort()
        return LargeChange(_change(revision, changed), keys, digest, size)

    def replace(self, large: LargeChange) -> None:
        """Apply a large transaction, whose effect was computed for this revision."""
        change = large.change
        assert change.revision == self.revision + 1
        self.revision = change.revision
        self.entries.update((entry.key, entry) for entry in change.entries)
        for key in change.deleted:
            self.entries.pop(key, None)
        self.keys, self._digest, self._size = large.keys, large.digest, large.size
        self._keep(change)

    def snapshot(self) -> Iterator[Row]:
        """Returns the rows. Entries never change, so copies of the references are a frozen state."""
        return _rows(list(self.keys), dict(self.entries), dict(self.leases), self.revision)

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state by that of a snapshot."""
        entries: dict[str, Entry] = {}
        self.leases, self.revision = {}, 0
        digest = size = 0
        for key, value in rows:
            # A start spends most of its time here.
            kind = key[:1]
            if kind == ENTRY_KEY:
                entry = decode_entry(key, value)
                entries[entry.key] = entry
            elif kind == LEASE_KEY:
                self.leases[decode_number(key[1:])] = decode_number(value)
            elif kind == REVISION_KEY:
                self.revision = decode_number(value)
                continue
            digest += row_digest(key, value)
            size += row_bytes(key, value)
        self.entries, self.keys = entries, sorted(entries)
        self._digest, self._size, self._uncounted = replaced(0, 0, digest), size, {}
        self.history = ChangeHistory(self.revision)

    def digest(self) -> int:
        """Returns the digest of all rows."""
        return replaced(self._counted()[0], 0, row_digest(*revision_row(self.revision)))

    def size_bytes(self) -> int:
        """Returns the bytes of the rows of entries and leases."""
        return self._counted()[1]

    def _counted(self) -> tuple[int, int]:
        """Returns digest and size. Counts what a replay has left."""
        if self._uncounted:
            uncounted, self._uncounted = self._uncounted, {}
            for key, before in uncounted.items():
                self._count(before, self.entries.get(key))
        return self._digest, self._size

    def _count(self, before: Entry | None, after: Entry | None) -> None:
        self._digest, self._size = _replaced(self._digest, self._size, before, after)

    def _note_changed(self, key: str, before: Entry | None, after: Entry | None) -> None:
        """Count a change, at once or after the replay."""
        if self._is_replaying:
            self._uncounted.setdefault(key, before)
        else:
            self._counted()
            self._count(before, after)

    def _keep(self, change: Change) -> None:
        self.history.append(change)
        assert len(self.keys) == len(self.entries), "every entry has its key in order"

    def _set(self, changed: dict[str, Entry | None], key: str, value: str, lease: int) -> None:
        before = self.entries.get(key)
        entry = entry_after(before, key, value, lease, self.revision)
        if before is None:
            bisect.insort(self.keys, key)
        self._note_changed(key, before, entry)
        self.entries[key] = changed[key] = entry

    def _remove(self, changed: dict[str, Entry | None], key: str) -> None:
        before = self.entries.get(key)
        if before is not None:
            self._note_changed(key, before, None)
            del self.entries[key]
            del self.keys[bisect.bisect_left(self.keys, key)]
            changed[key] = None

    def _grant(self, lease: int, ttl_ms: int) -> None:
        self.leases[lease] = ttl_ms
        row = lease_row(lease, ttl_ms)
        self._digest = replaced(self._digest, 0, row_digest(*row))
        self._size += row_bytes(*row)

    def _revoke(self, changed: dict[str, Entry | None], lease: int) -> None:
        ttl_ms = self.leases.pop(lease, None)
        if ttl_ms is not None:
            row = lease_row(lease, ttl_ms)
            self._digest = replaced(self._digest, row_digest(*row), 0)
            self._size -= row_bytes(*row)
        for key in [key for key, entry in self.entries.items() if entry.lease == lease]:
            self._remove(changed, key)


def entry_after(before: Entry | None, key: str, value: str, lease: int, revision: int) -> Entry:
    """Returns the entry that a put makes."""
    return Entry(
        key=key,
        value=value,
        create_revision=before.create_revision if before else revision,
        mod_revision=revision,
        lease=lease,
    )


def _replaced(digest: int, size: int, before: Entry | None, after: Entry | None) -> tuple[int, int]:
    """Returns digest and size of the rows after an entry was replaced."""
    old = new = 0
    if before is not None:
        row = entry_row(before)
        old, size = row_digest(*row), size - row_bytes(*row)
    if after is not None:
        row = entry_row(after)
        new, size = row_digest(*row), size + row_bytes(*row)
    return replaced(digest, old, new), size


def _change(revision: int, changed: Mapping[str, Entry | None]) -> Change:
    return Change(
        revision=revision,
        entries=tuple([entry for entry in changed.values() if entry is not None]),
        deleted=tuple([key for key, entry in changed.items() if entry is None]),
    )


def _rows(
    keys: list[str], entries: dict[str, Entry], leases: dict[int, int], revision: int
) -> Iterator[Row]:
    for key in keys:
        yield entry_row(entries[key])
    for lease in sorted(leases):
        yield lease_row(lease, leases[lease])
    yield revision_row(revision)
