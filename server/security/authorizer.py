"""Decides whether a principal may perform an operation on a resource.

    1. super.users may do everything.
    2. An ACL that denies decides, then one that allows.
    3. A resource without ACLs: allow.everyone.if.no.acl.found decides.
    4. Otherwise the operation is denied.

Decisions are cached until an ACL changes. Source: Apache Kafka, StandardAuthorizerData.java.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from server.security.acl_index import AclIndex
from server.security.acls import Acl, Operation, Permission, ResourceType
from server.security.principal import Principal
from storage.threads import loop_thread

DECISIONS_MAX = 50_000
"""Bound on the cached decisions. Beyond it all are dropped; freeing more would hold the loop."""
CACHED_NAME_MAX = 255
"""Decisions about longer names are not cached: clients choose the names, of up to 32 KiB."""


class Because(enum.Enum):
    """Why a decision was made that no ACL has made, in Kafka's words."""

    SUPER_USER = "SuperUser"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and the rule that decided."""

    is_allowed: bool
    rule: Acl | Because

    def __str__(self) -> str:
        """Returns the rule, as in Kafka's log of authorizations."""
        if isinstance(self.rule, Because):
            return self.rule.value
        return f"MatchingAcl(acl={self.rule})"


_BY_SUPER_USER = Decision(True, Because.SUPER_USER)
_BY_DEFAULT = {
    True: Decision(True, Because.DEFAULT_ALLOW),
    False: Decision(False, Because.DEFAULT_DENY),
}


@loop_thread
class Authorizer:
    """The decisions over the ACLs in memory. `server/security/acl_store.py` stores and changes them."""

    __slots__ = ("_allows_without_acl", "_decisions", "_index", "_super_users", "revision")

    def __init__(self, *, super_users: Iterable[str], allows_without_acl: bool) -> None:
        # Constant after construction
        self._super_users = frozenset(Principal.parse(each) for each in super_users)
        self._allows_without_acl = allows_without_acl
        # State
        self._index = AclIndex()
        self._decisions: dict[tuple[Principal, str, int, int, str | None], Decision] = {}
        self.revision = 0
        """How often the ACLs have changed. While it stays the same, so do all decisions."""

    def decide(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Decision:
        """Returns whether a principal may perform an operation on a resource.

        Args:
            host: the client's address.
            kind, name: the resource; a name, not a pattern.
        """
        key = (principal, host, operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, kind, name)
            if len(name) <= CACHED_NAME_MAX:
                self._keep(key, decision)
        return decision

    def decide_on_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> Decision:
        """Returns whether a principal may perform an operation on at least one resource of a type."""
        key = (principal, host, operation, kind, None)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide_on_any(principal, host, operation, kind)
            self._keep(key, decision)
        return decision

    def add(self, acls: Iterable[Acl]) -> None:
        """Add ACLs that do not exist yet."""
        for acl in acls:
            self._index.add(acl)
        self._forget_decisions()

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove ACLs that exist."""
        for acl in acls:
            self._index.remove(acl)
        self._forget_decisions()

    def _decide(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Decision:
        if principal in self._super_users:
            return _BY_SUPER_USER
        acl, has_acls = self._index.deciding_acl(str(principal), host, operation, kind, name)
        if acl is not None:
            return _by(acl)
        return _BY_DEFAULT[self._allows_without_acl and not has_acls]

    def _decide_on_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> Decision:
        # As in Kafka: a resource that has no ACL, which allow.everyone.if.no.acl.found opens to all.
        on_new = self._decide(principal, host, operation, kind, "hardcode")
        if on_new.is_allowed:
            return on_new
        acl = self._index.acl_on_any(str(principal), host, operation, kind)
        return _by(acl) if acl is not None else _BY_DEFAULT[False]

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self.revision += 1

    def _keep(self, key: tuple[Principal, str, int, int, str | None], decision: Decision) -> None:
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = decision


def _by(acl: Acl) -> Decision:
    return Decision(acl.permission is Permission.ALLOW, acl)
