"""Stores the ACLs in the metadata store, and changes them there and in the authorizer.

    /acls/<uuid>    {"resource_type": "TOPIC", "resource_name": "orders", ...}    one ACL

The changes of a request are one transaction. Afterwards they take effect in slices of the loop, what
restricts before what allows, so that no moment allows more than the ACLs before or after.

Source: Apache Kafka, AclControlManager.java.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence

from cleaner.rules.text import count_text
from protocol.wire.error_codes import ErrorCode
from server.config.config import BrokerConfig
from server.metadata.store import Delete, MetadataStore, Put
from server.runtime.turns import Pace
from server.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    fault_of_acl,
    fault_of_filter,
)
from server.security.authorizer import Authorizer
from server.topics.topic import TopicRefused
from storage.files.errors import StorageError
from storage.threads import loop_thread

_log = logging.getLogger("server.security.acl_store")

PREFIX = "/acls/"
CHANGES_MAX = 10_000
"""The most ACLs that a request may add, or a request may remove, as in Kafka."""
CHANGES_PER_STEP = 32
"""Changes that take effect before the slice of the loop is looked at."""

TOO_MANY = TopicRefused(
    error_code=ErrorCode.POLICY_VIOLATION,
    message="Unable to perform excessively large batch operation.",
)


@loop_thread
class AclStore:
    """Sole owner of the ACLs."""

    __slots__ = ("_authorizer", "_ids", "_lock", "_store")

    def __init__(self, store: MetadataStore, authorizer: Authorizer) -> None:
        # Constant after construction
        self._store = store
        self._authorizer = authorizer
        self._lock = asyncio.Lock()
        # State: the ACLs with their ids, in the order of their creation.
        self._ids: dict[Acl, str] = {}

    async def open(self) -> None:
        """Load the stored ACLs.

        Raises:
            StorageError: one cannot be read; the broker must not serve without it, as it may deny.
        """
        for entry in (await self._store.range(PREFIX)).entries:
            self._ids[_parse(entry.key, entry.value)] = entry.key.removeprefix(PREFIX)
        self._authorizer.add(self._ids)

    def all(self) -> list[Acl]:
        """Returns all ACLs."""
        return list(self._ids)

    async def matching(self, wanted: AclFilter, pace: Pace) -> list[Acl]:
        """Returns the ACLs that a filter selects, in slices."""
        only = wanted.only
        if only is not None:
            return [only] if only in self._ids else []
        return [acl async for acl in pace.paced(self.all()) if wanted.matches(acl)]

    async def create(self, acls: Sequence[Acl], pace: Pace) -> list[TopicRefused | None]:
        """Create ACLs; those that exist already stay. Durable and in effect when this returns.

        Returns:
            For each, why it was not created, or None.

        Raises:
            StorageError: the store failed; nothing was changed.
        """
        async with self._lock:
            added: dict[Acl, str] = {}
            results: list[TopicRefused | None] = []
            async for acl in pace.paced(acls):
                fault = fault_of_acl(acl)
                results.append(None if fault is None else _invalid(fault))
                if fault is None and acl not in self._ids and acl not in added:
                    added[acl] = str(uuid.uuid4())
            if len(added) > CHANGES_MAX:
                return [TOO_MANY] * len(acls)
            if added:
                operations = [
                    Put(key=PREFIX + id_, value=_text(acl))
                    async for acl, id_ in pace.paced(added.items())
                ]
                await self._store.txn((), operations)
                await self._take_effect(_denying_first(added), self._add(added), pace)
                _log.info("created %s", count_text(len(added), "ACL"))
            return results

    async def delete(
        self, filters: Sequence[AclFilter], pace: Pace
    ) -> list[list[Acl] | TopicRefused]:
        """Delete the ACLs that any of the filters selects. Durable and in effect when this returns.

        Returns:
            For each filter the ACLs that it selects, or why it has deleted nothing.

        Raises:
            StorageError: the store failed; nothing was changed.
        """
        async with self._lock:
            known: dict[AclFilter, list[Acl] | TopicRefused] = {}
            removed: dict[Acl, None] = {}
            async for wanted in pace.paced(filters):
                if wanted not in known:
                    known[wanted] = await self._select(wanted, removed, pace)
            if removed:
                operations = [
                    Delete(key=PREFIX + self._ids[acl]) async for acl in pace.paced(removed)
                ]
                await self._store.txn((), operations)
                await self._take_effect(_allowing_first(removed), self._remove, pace)
                _log.info("deleted %s", count_text(len(removed), "ACL"))
            return [known[wanted] async for wanted in pace.paced(filters)]

    async def _select(
        self, wanted: AclFilter, removed: dict[Acl, None], pace: Pace
    ) -> list[Acl] | TopicRefused:
        """Returns the ACLs of a filter and notes them in `removed`, unless they become too many."""
        fault = fault_of_filter(wanted)
        if fault is not None:
            return _invalid(fault)
        selected = await self.matching(wanted, pace)
        # Of more than twice as many, at most half can be in `removed`: no need to look at each.
        if len(selected) > 2 * CHANGES_MAX:
            return TOO_MANY
        if len(removed) + sum(acl not in removed for acl in selected) > CHANGES_MAX:
            return TOO_MANY
        removed.update(dict.fromkeys(selected))
        return selected

    async def _take_effect(
        self, acls: list[Acl], change: Callable[[Sequence[Acl]], None], pace: Pace
    ) -> None:
        """Make changes that are durable effective, in slices."""
        for start in range(0, len(acls), CHANGES_PER_STEP):
            change(acls[start : start + CHANGES_PER_STEP])
            if pace.is_over:
                await pace.rest()

    def _add(self, ids: dict[Acl, str]) -> Callable[[Sequence[Acl]], None]:
        def add(acls: Sequence[Acl]) -> None:
            self._ids.update((acl, ids[acl]) for acl in acls)
            self._authorizer.add(acls)

        return add

    def _remove(self, acls: Sequence[Acl]) -> None:
        for acl in acls:
            del self._ids[acl]
        self._authorizer.remove(acls)


async def open_acls(
    store: MetadataStore, config: BrokerConfig
) -> tuple[Authorizer, AclStore] | None:
    """Returns the authorizer and its ACLs; None if `authorizer.class.name` is not set.

    Raises:
        StorageError: a stored ACL cannot be read.
    """
    if not config.authorizer_class_name:
        return None
    authorizer = Authorizer(
        super_users=config.resolved_super_users(),
        allows_without_acl=config.allow_everyone_if_no_acl_found,
    )
    acls = AclStore(store, authorizer)
    await acls.open()
    return authorizer, acls


def _denying_first(acls: Iterable[Acl]) -> list[Acl]:
    return sorted(acls, key=lambda acl: acl.permission)


def _allowing_first(acls: Iterable[Acl]) -> list[Acl]:
    return sorted(acls, key=lambda acl: -acl.permission)


def _invalid(message: str) -> TopicRefused:
    return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=message)


def _text(acl: Acl) -> str:
    """Returns the stored form of an ACL: its fields, with the names of its numbers."""
    named = {
        field: getattr(value, "name", value) for field, value in zip(acl._fields, acl, strict=True)
    }
    return json.dumps(named, separators=(",", ":"))


def _parse(key: str, text: str) -> Acl:
    """Returns a stored ACL. Raises StorageError if it is not one of this release."""
    try:
        fields = json.loads(text)
        return Acl(
            ResourceType[fields["resource_type"]],
            fields["resource_name"],
            PatternType[fields["pattern_type"]],
            fields["principal"],
            fields["host"],
            Operation[fields["operation"]],
            Permission[fields["permission"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        problem = f"metadata store: the ACL {key} cannot be read ({error!r}): {text[:200]}"
        raise StorageError(problem) from error
