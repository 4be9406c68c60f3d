"""The entries of a ledger of cleaning passes, and the chain that they form. Pure.

    file  := entry{entry}                    <number of its first entry, 20 digits>.ledger
    entry := hash | space | JSON object, ASCII | newline
    hash  := SHA-256 of the JSON, 64 hex digits

Every object has `n`, its number, counted from 0 over all files; `previous`, the hash of the entry before
it (64 zeros: there is none); `at_ms`, wall time; and `kind`:

    begin    first of each file: format, directory, cluster, public_key; why; open_since
    group    a group of segments, before its swap: what was replaced by what, and by which rules
    pass     the end of a pass: which of its groups were swapped
    settled  the same for a pass without an end, found at a start
    undone   an operator undid a pass: the segments that are no longer listed, and those that are again
    cut      a crash had torn the last entry: so many bytes were cut off, and kept beside
    removed  the oldest file was removed: its last entry's number and hash
    key      from here on the directory has another public key
    off, on  cleaning ran without the ledger in between

So an entry cannot be changed, exchanged or left out without a difference in all later hashes. Readers
skip kinds and members that they do not know. docs/design/ledger.md says what that promises.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FORMAT = 1
SUFFIX = ".ledger"
HASH_DIGITS = 64
NO_HASH = "0" * HASH_DIGITS
"""The hash before the first entry."""

BEGIN, GROUP, PASS, SETTLED, CUT, REMOVED = "begin", "group", "pass", "settled", "cut", "removed"
UNDONE = "undone"
NEW_KEY, OFF, ON = "key", "off", "on"

_FILE = re.compile(r"(\d{20})\.ledger")

Members = Mapping[str, Any]
"""What an entry says beside its place in the chain: JSON types only."""


@dataclass(frozen=True, slots=True)
class Head:
    """The place of an entry in the chain."""

    number: int
    hash: str
    at_ms: int = -1


NO_HEAD = Head(-1, NO_HASH)
"""Before the first entry."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A sound entry."""

    number: int
    previous: str
    at_ms: int
    kind: str
    members: dict[str, Any]
    """The whole object."""
    hash: str

    @property
    def head(self) -> Head:
        """Its place in the chain."""
        return Head(self.number, self.hash, self.at_ms)

    def follows(self, head: Head) -> bool:
        """Returns whether it is the entry after `head`."""
        return self.number == head.number + 1 and self.previous == head.hash


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file: an entry, or bytes that are none."""

    position: int
    size: int
    """With the newline, which may be missing at the file's end."""
    entry: Entry | None


def file_name(number: int) -> str:
    """Returns the name of the file that begins with an entry."""
    return f"{number:020d}{SUFFIX}"


def parse_file_name(name: str) -> int | None:
    """Returns the number of a file's first entry; None if the name is no ledger's."""
    match = _FILE.fullmatch(name)
    return None if match is None else int(match[1])


def encode_entry(head: Head, at_ms: int, kind: str, members: Members) -> tuple[bytes, Head]:
    """Returns the line of the entry after `head`, and its own place."""
    entry = {"n": head.number + 1, "previous": head.hash, "at_ms": at_ms, "kind": kind, **members}
    text = json.dumps(entry, separators=(",", ":")).encode()
    digits = hashlib.sha256(text).hexdigest()
    return b"%s %s\n" % (digits.encode(), text), Head(head.number + 1, digits, at_ms)


def decode_entry(line: bytes) -> Entry | None:
    """Returns the entry of a line without its newline; None if the line is not sound."""
    digits, text = line[:HASH_DIGITS], line[HASH_DIGITS + 1 :]
    hashed = hashlib.sha256(text).hexdigest()
    if line[: HASH_DIGITS + 1] != b"%s " % hashed.encode():
        return None
    try:
        members = json.loads(text)
    except ValueError:
        return None
    try:
        number, at_ms = members["n"], members["at_ms"]
        previous, kind = members["previous"], members["kind"]
    except (KeyError, TypeError):
        return None
    are_right = isinstance(number, int) and isinstance(at_ms, int) and isinstance(kind, str)
    if not are_right or not isinstance(previous, str):
        return None
    return Entry(number, previous, at_ms, kind, members, digits.decode())


def lines_of(data: bytes) -> Iterator[Line]:
    """Yields the lines of a file. A last one without a newline is not sound."""
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        if end < 0:
            yield Line(position, len(data) - position, None)
            return
        yield Line(position, end + 1 - position, decode_entry(data[position:end]))
        position = end + 1
