"""The ACLs, arranged so that a decision looks at few of them, however many there are.

    patterns   (TOPIC, PREFIXED, "orders-")                      -> number of its rows
    rows       (TOPIC, PREFIXED, "orders-", "User:alice", "*")   -> bits of operations: allowed, denied
    lengths    TOPIC -> the lengths that its prefixes have
    granted    (TOPIC, "User:alice", "*", WRITE)                 -> the patterns with such an ACL

A resource has the patterns of its own name, of `*`, and of each of its prefixes that has a length in
`lengths`. A decision takes a look-up for each of these, and four for each pattern that exists: for the
principal and for every principal, from the host and from every host.
"""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from collections.abc import Iterator, Sequence

from server.security.acls import (
    ANY_USER,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from storage.threads import loop_thread

_Pattern = tuple[ResourceType, PatternType, str]
_Row = tuple[ResourceType, PatternType, str, str, str]
_Subject = tuple[ResourceType, str, str, Operation]

IMPLIED_BY: dict[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}  # fmt: skip
"""The operations that allow another one if they are allowed. They never deny it if they are denied.

Source: Apache Kafka, StandardAuthorizerData.java."""


@loop_thread
class AclIndex:
    """All ACLs, for decisions. Holds each at most once: adding it again is a mistake of the caller."""

    __slots__ = ("_granted", "_lengths", "_patterns", "_prefix_counts", "_rows")

    def __init__(self) -> None:
        self._rows: dict[_Row, tuple[int, int]] = {}
        # Derived from the rows
        self._patterns: Counter[_Pattern] = Counter()
        self._prefix_counts: dict[ResourceType, Counter[int]] = {}
        self._lengths: dict[ResourceType, tuple[int, ...]] = {}
        self._granted: dict[_Subject, dict[tuple[PatternType, str], None]] = {}

    def add(self, acl: Acl) -> None:
        """Add an ACL that is not in the index."""
        row = _row_of(acl)
        before = self._rows.get(row)
        if before is None:
            self._add_pattern(acl)
        self._rows[row] = _with(before or (0, 0), acl)
        if acl.permission is Permission.ALLOW:
            granted = self._granted.setdefault(_subject_of(acl), {})
            granted[acl.pattern_type, acl.resource_name] = None

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that is in the index."""
        row = _row_of(acl)
        left = _without(self._rows[row], acl)
        if left == (0, 0):
            del self._rows[row]
            self._remove_pattern(acl)
        else:
            self._rows[row] = left
        if acl.permission is Permission.ALLOW:
            subject = _subject_of(acl)
            del self._granted[subject][acl.pattern_type, acl.resource_name]
            if not self._granted[subject]:
                del self._granted[subject]

    def _add_pattern(self, acl: Acl) -> None:
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        self._patterns[pattern] += 1
        if acl.pattern_type is PatternType.PREFIXED and self._patterns[pattern] == 1:
            counts = self._prefix_counts.setdefault(acl.resource_type, Counter())
            counts[len(acl.resource_name)] += 1
            self._set_lengths(acl.resource_type)

    def _remove_pattern(self, acl: Acl) -> None:
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        self._patterns[pattern] -= 1
        if not self._patterns[pattern]:
            del self._patterns[pattern]
            if acl.pattern_type is PatternType.PREFIXED:
                counts, length = self._prefix_counts[acl.resource_type], len(acl.resource_name)
                counts[length] -= 1
                if not counts[length]:
                    del counts[length]
                self._set_lengths(acl.resource_type)

    def _set_lengths(self, resource_type: ResourceType) -> None:
        counts = self._prefix_counts[resource_type]
        if len(counts) != len(self._lengths.get(resource_type, ())):
            self._lengths[resource_type] = tuple(sorted(counts))

    # Decisions.

    def deciding_acl(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> tuple[Acl | None, bool]:
        """Returns the ACL that decides, a denying one if any matches, and whether the resource has ACLs.

        Args:
            host: the client's address.
            kind, name: the resource.
        """
        allowing, has_acls = None, False
        for pattern in self._patterns_of(kind, name):
            has_acls = True
            for row in self._rows_of(pattern, principal, host):
                allowed, denied = self._rows[row]
                operation_denied = _first(denied, (operation, Operation.ALL))
                if operation_denied is not None:
                    return _acl_of(row, operation_denied, Permission.DENY), True
                if allowing is None and (by := _first(allowed, _allowing(operation))) is not None:
                    allowing = _acl_of(row, by, Permission.ALLOW)
        return allowing, has_acls

    def acl_on_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> Acl | None:
        """Returns an ACL that allows an operation on at least one resource of a type; None if none does.

        As in Kafka, operations do not imply others here. An ACL does not count if an ACL that denies the
        operation covers its whole pattern.

        Source: Apache Kafka, Authorizer.java `authorizeByResourceType`.
        """
        every = (kind, PatternType.LITERAL, WILDCARD)
        if self._is_denied(every, principal, host, operation):
            return None
        for subject in _subjects(principal, host, operation, kind):
            for pattern_type, name in self._granted.get(subject, ()):
                allowed = (kind, pattern_type, name)
                if not self._is_covered(allowed, principal, host, operation):
                    _, holder, from_host, by = subject
                    return Acl(
                        kind, name, pattern_type, holder, from_host, by, Permission.ALLOW
                    )  # fmt: skip
        return None

    def _is_covered(
        self, allowed: _Pattern, principal: str, host: str, operation: Operation
    ) -> bool:
        """Returns whether an ACL that denies covers a whole pattern; `*` is looked at elsewhere."""
        kind, pattern_type, name = allowed
        if allowed == (kind, PatternType.LITERAL, WILDCARD):
            return False
        return any(
            self._is_denied(pattern, principal, host, operation)
            for pattern in self._patterns_of(kind, name)
            if PatternType.PREFIXED is pattern[1] or pattern_type is PatternType.LITERAL
        )

    def _is_denied(
        self, pattern: _Pattern, principal: str, host: str, operation: Operation
    ) -> bool:
        return any(
            _first(self._rows[row][1], (operation, Operation.ALL)) is not None
            for row in self._rows_of(pattern, principal, host)
        )

    def _patterns_of(self, kind: ResourceType, name: str) -> Iterator[_Pattern]:
        """Yields the patterns that exist and apply to a resource."""
        for pattern in ((kind, PatternType.LITERAL, name), (kind, PatternType.LITERAL, WILDCARD)):
            if pattern in self._patterns:
                yield pattern
            if name == WILDCARD:
                break
        for length in self._lengths.get(kind, ()):
            if length > len(name):
                return
            pattern = (kind, PatternType.PREFIXED, name[:length])
            if pattern in self._patterns:
                yield pattern

    def _rows_of(self, pattern: _Pattern, principal: str, host: str) -> Iterator[_Row]:
        for each in (principal, ANY_USER):
            for from_host in spellings(host):
                row = (*pattern, each, from_host)
                if row in self._rows:
                    yield row


@functools.lru_cache(maxsize=1024)
def spellings(host: str) -> tuple[str, ...]:
    """Returns the texts by which ACLs name a client's address: `*`, Python's and Java's.

    Java writes all groups of an IPv6 address, and an IPv4 address that a socket for both gives as IPv6
    as IPv4.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return WILDCARD, host
    if isinstance(address, ipaddress.IPv4Address):
        return WILDCARD, host
    if address.ipv4_mapped is not None:
        return WILDCARD, str(address.ipv4_mapped)
    text, _, scope = host.partition("%")
    groups = ipaddress.IPv6Address(text).exploded.split(":")
    java = ":".join(f"{int(group, 16):x}" for group in groups) + (f"%{scope}" if scope else "")
    return tuple(dict.fromkeys((WILDCARD, host, java)))


def _row_of(acl: Acl) -> _Row:
    return acl.resource_type, acl.pattern_type, acl.resource_name, acl.principal, acl.host


def _subject_of(acl: Acl) -> _Subject:
    return acl.resource_type, acl.principal, acl.host, acl.operation


def _subjects(
    principal: str, host: str, operation: Operation, kind: ResourceType
) -> Iterator[_Subject]:
    for each in (principal, ANY_USER):
        for from_host in spellings(host):
            for by in (operation, Operation.ALL):
                yield kind, each, from_host, by


def _with(masks: tuple[int, int], acl: Acl) -> tuple[int, int]:
    allowed, denied = masks
    bit = 1 << acl.operation
    return (
        (allowed | bit, denied) if acl.permission is Permission.ALLOW else (allowed, denied | bit)
    )


def _without(masks: tuple[int, int], acl: Acl) -> tuple[int, int]:
    allowed, denied = masks
    bit = ~(1 << acl.operation)
    return (
        (allowed & bit, denied) if acl.permission is Permission.ALLOW else (allowed, denied & bit)
    )


def _allowing(operation: Operation) -> Sequence[Operation]:
    return (*IMPLIED_BY.get(operation, (operation,)), Operation.ALL)


def _first(mask: int, operations: Sequence[Operation]) -> Operation | None:
    """Returns the first of the operations whose bit is set."""
    return next((each for each in operations if mask >> each & 1), None)


def _acl_of(row: _Row, operation: Operation, permission: Permission) -> Acl:
    kind, pattern_type, name, principal, host = row
    return Acl(kind, name, pattern_type, principal, host, operation, permission)
