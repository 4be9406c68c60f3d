"""Takes ACLs of a source's topics along to their mirrors, if this broker has an authorizer.

What the link has created is stored in the cluster's metadata, before it is created, so that the link
removes it when the source no longer has it, and removes nothing else:

/link-acls/<link>   [[name, pattern type, principal, host, operation, permission], ...]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from cleaner.rules.text import count_text
from protocol.messages.describe_acls import DescribeAclsResponse
from protocol.wire.error_codes import ErrorCode
from server.client.broker_client import BrokerClient
from server.client.errors import ClientFailed
from server.metadata.store import Delete, MetadataStore, Put
from server.replication.acl_changes import acl_changes
from server.runtime.executors import Executor
from server.runtime.tasks import to_its_end
from server.runtime.turns import Pace, Turns
from server.security.acl_messages import acls_of, describe_request
from server.security.acl_store import AclStore
from server.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    fault_of_acl,
)
from storage.files.errors import StorageError
from storage.threads import loop_thread

LINK_ACLS = "/link-acls/"
ACLS_MAX = 10_000
CHANGES_AT_ONCE = 1_000
TOPIC_ACLS = AclFilter(resource_type=ResourceType.TOPIC)
NO_AUTHORIZER = "this broker has no authorizer (authorizer.class.name), so ACLs have no effect here"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFacts:
    """What people see of the ACLs of a link."""

    acls: int
    """ACLs that the link has created here."""
    synced_ms: int | None
    """When they last were those of the source, as wall time."""
    problem: str
    """Why they may differ from the source's; empty if nothing failed."""


class AclsDiffer(Exception):
    """The ACLs here cannot be made those of the source; the message says why."""


@loop_thread
class AclSync:
    """The ACLs of one link."""

    __slots__ = (
        "_acls",
        "_key",
        "_now_ms",
        "_owned",
        "_problem",
        "_store",
        "_synced_ms",
        "_threads",
    )

    def __init__(
        self,
        link: str,
        store: MetadataStore,
        acls: AclStore | None,
        *,
        threads: Executor,
        now_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            acls: None if this broker has no authorizer.
            threads: compare, sort and parse ACLs, which may be very many.
        """
        # Constant after construction
        self._key = LINK_ACLS + link
        self._store = store
        self._acls = acls
        self._threads = threads
        self._now_ms = now_ms
        # State
        self._owned: frozenset[Acl] | None = None
        """None until they were read."""
        self._problem = ""
        self._synced_ms: int | None = None

    def facts(self) -> AclFacts:
        """Returns what people see."""
        count = len(self._owned or ())
        return AclFacts(acls=count, synced_ms=self._synced_ms, problem=self._problem)

    async def sync(self, client: BrokerClient, topics: Collection[str]) -> None:
        """Make the ACLs of these mirrors those that the source has.

        If that fails, `facts` says why, and the link continues with its slots and copies.
        """
        if self._acls is None:
            self._problem = NO_AUTHORIZER
            return
        try:
            await self._follow(self._acls, await _acls_of(client), topics)
        except (AclsDiffer, ClientFailed, StorageError) as error:
            self._problem = str(error)
            return
        self._problem, self._synced_ms = "", self._now_ms()

    async def _follow(self, acls: AclStore, source: list[Acl], topics: Collection[str]) -> None:
        owned, pace = await self._stored(), Pace(Turns())
        changes = await self._threads.run(acl_changes, source, topics, owned=owned, here=acls.all())
        if len(changes.owned) > ACLS_MAX:
            raise AclsDiffer(
                f"the source has {count_text(len(changes.owned), 'ACL')} of these topics,"
                f" {ACLS_MAX} can go along"
            )
        # First what is owned: after a crash what is owned and not here is created or forgotten.
        await self._store_owned(owned | changes.owned)
        for part in await self._threads.run(_parts, changes.create, denials_first=True):
            faults = [
                each for each in await to_its_end(acls.create(part, pace)) if each is not None
            ]
            if faults:
                raise AclsDiffer(faults[0].message)
        for part in await self._threads.run(_parts, changes.delete, denials_first=False):
            await to_its_end(acls.delete([_filter(each) for each in part], pace))
        await self._store_owned(changes.owned)

    async def _stored(self) -> frozenset[Acl]:
        if self._owned is None:
            entry = await self._store.get(self._key)
            owned = None if entry is None else await self._threads.run(_parse, entry.value)
            self._owned = owned or frozenset()
        return self._owned

    async def _store_owned(self, owned: frozenset[Acl]) -> None:
        if owned != self._owned:
            text = await self._threads.run(_text, owned)
            await self._store.txn((), [Put(key=self._key, value=text)])
            self._owned = owned


def forgotten_acls(link: str) -> Delete:
    """Returns the operation that forgets what a link owns; its ACLs stay."""
    return Delete(key=LINK_ACLS + link)


async def _acls_of(client: BrokerClient) -> list[Acl]:
    """Returns the source's ACLs of topics. Raises ClientFailed, AclsDiffer."""
    answer = await client.call(describe_request(TOPIC_ACLS), DescribeAclsResponse)
    if answer.error_code:
        reason = answer.error_message or ErrorCode.from_wire(answer.error_code).message
        raise AclsDiffer(f"the source's ACLs: {reason}")
    found, pace = list[Acl](), Pace(Turns())
    async for resource in pace.paced(answer.resources):
        found += [each for each in acls_of(resource) if fault_of_acl(each) is None]
    return found


def _parts(acls: Iterable[Acl], *, denials_first: bool) -> list[list[Acl]]:
    """Returns the ACLs in parts. Create denials first and delete them last: between two parts nothing
    may be allowed that both the source and this broker deny."""
    rest = sorted(acls, key=lambda each: (each.permission, each), reverse=not denials_first)
    return [rest[at : at + CHANGES_AT_ONCE] for at in range(0, len(rest), CHANGES_AT_ONCE)]


def _filter(acl: Acl) -> AclFilter:
    return AclFilter(**acl._asdict())


def _text(acls: frozenset[Acl]) -> str:
    rows = [
        (
            each.resource_name,
            each.pattern_type.name,
            each.principal,
            each.host,
            each.operation.name,
            each.permission.name,
        )
        for each in sorted(acls)
    ]
    return json.dumps(rows, separators=(",", ":"))


def _parse(text: str) -> frozenset[Acl]:
    """Returns the stored ACLs. Raises AclsDiffer if they are not of this release."""
    try:
        return frozenset(
            Acl(
                ResourceType.TOPIC,
                name,
                PatternType[kind],
                principal,
                host,
                Operation[operation],
                Permission[permission],
            )
            for name, kind, principal, host, operation, permission in json.loads(text)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise AclsDiffer(f"what the link has created cannot be read: {error!r}") from error
