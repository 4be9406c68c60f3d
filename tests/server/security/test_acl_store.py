"""The ACLs in the metadata store: what is stored is in effect, and only that, at every moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from server.config.authorization_config import AUTHORIZERS
from server.config.config import BrokerConfig
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import Put
from server.runtime.turns import Pace, Turns
from server.security import acl_store
from server.security.acl_store import PREFIX, TOO_MANY, AclStore, open_acls
from server.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from server.security.authorizer import Authorizer
from server.security.principal import Principal
from server.topics.topic import TopicRefused
from storage.files.errors import StorageError
from tests.harness.memory_fs import Loss, MemoryFileSystem

TOPIC = ResourceType.TOPIC
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE = Principal.parse("User:alice")
HOST = "10.0.0.1"
DIRECTORY = "/data/metadata"
CONFIG = BrokerConfig.from_texts({"authorizer.class.name": AUTHORIZERS[0]})


def acl(
    name: str,
    permission: Permission = Permission.ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    operation: Operation = Operation.READ,
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, "*", operation, permission)


def pace() -> Pace:
    return Pace(Turns())


def a_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


async def opened(
    disk: MemoryFileSystem,
) -> tuple[EmbeddedMetadataStore, Authorizer, AclStore]:
    store = await EmbeddedMetadataStore.open(disk, DIRECTORY)
    found = await open_acls(store, CONFIG)
    assert found is not None
    return store, *found


@pytest.fixture
async def parts() -> AsyncIterator[tuple[EmbeddedMetadataStore, Authorizer, AclStore]]:
    found = await opened(a_disk())
    yield found
    await found[0].close()


Parts = tuple[EmbeddedMetadataStore, Authorizer, AclStore]


def may_read(authorizer: Authorizer, name: str) -> bool:
    return authorizer.decide(ALICE, HOST, Operation.READ, TOPIC, name).is_allowed


async def test_a_created_acl_decides_at_once_and_a_deleted_one_no_more(parts: Parts) -> None:
    _, authorizer, acls = parts
    assert not may_read(authorizer, "orders")

    assert await acls.create([acl("orders")], pace()) == [None]
    assert may_read(authorizer, "orders")

    assert await acls.delete([AclFilter(resource_name="orders")], pace()) == [[acl("orders")]]
    assert not may_read(authorizer, "orders")


async def test_acls_survive_a_restart() -> None:
    disk = a_disk()
    store, _, acls = await opened(disk)
    kept = [acl("orders"), acl("o", Permission.DENY, pattern=PREFIXED, principal="User:é:x")]
    await acls.create([*kept, acl("gone")], pace())
    await acls.delete([AclFilter(resource_name="gone")], pace())
    await store.close()

    store, authorizer, acls = await opened(disk)

    assert set(acls.all()) == set(kept)
    assert may_read(authorizer, "orders")
    await store.close()


async def test_an_acl_that_exists_is_stored_once(parts: Parts) -> None:
    store, authorizer, acls = parts
    await acls.create([acl("orders"), acl("orders")], pace())
    revision = store.revision
    assert await acls.create([acl("orders")], pace()) == [None]
    assert store.revision == revision
    assert len((await store.range(PREFIX)).entries) == 1
    await acls.delete([AclFilter()], pace())
    assert not may_read(authorizer, "orders")


async def test_one_request_is_one_transaction(parts: Parts) -> None:
    store, _, acls = parts
    await acls.create([acl(f"t{number}") for number in range(100)], pace())
    assert store.revision == 1
    await acls.delete([AclFilter(resource_name="t1"), AclFilter(resource_name="t2")], pace())
    assert store.revision == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (acl(""), "Invalid empty resource name"),
        (acl("t")._replace(resource_type=ResourceType.CLUSTER),
         "The only valid name for the CLUSTER resource is kafka-cluster"),
        (acl("t")._replace(resource_type=ResourceType.ANY), "Invalid resourceType ANY"),
        (acl("t")._replace(resource_type=ResourceType(99)), "Invalid resourceType UNKNOWN"),
        (acl("t", pattern=PatternType.MATCH), "Invalid patternType MATCH"),
        (acl("t", operation=Operation.ANY), "Invalid operation ANY"),
        (acl("t", Permission.ANY), "Invalid permissionType ANY"),
        (acl("t", principal="alice"),
         "expected a string in format principalType:principalName but got alice"),
    ],
)  # fmt: skip
async def test_an_invalid_acl_is_refused_in_kafkas_words_and_the_others_are_created(
    parts: Parts, wrong: Acl, message: str
) -> None:
    _, _, acls = parts
    refused = TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=message)
    assert await acls.create([wrong, acl("orders")], pace()) == [refused, None]
    assert acls.all() == [acl("orders")]


async def test_filters_select_as_in_kafka(parts: Parts) -> None:
    """Kafka's testAclsFilter, and the cases of ResourcePatternFilterTest."""
    _, _, acls = parts
    literal, wildcard, prefix = acl("foo-1"), acl("*"), acl("foo", pattern=PREFIXED)
    of_bob = acl("foo-1", principal="User:bob", operation=Operation.WRITE)
    other = acl("bar", Permission.DENY)
    everything = [literal, wildcard, prefix, of_bob, other]
    await acls.create(everything, pace())

    async def found(**fields: object) -> set[Acl]:
        return set(await acls.matching(AclFilter(**fields), pace()))  # type: ignore[arg-type]

    assert await found() == set(everything)
    assert await found(resource_name="foo-1") == {literal, of_bob}
    assert await found(resource_name="foo-1", pattern_type=LITERAL) == {literal, of_bob}
    assert await found(resource_name="foo", pattern_type=LITERAL) == set()
    assert await found(resource_name="foo", pattern_type=PREFIXED) == {prefix}
    assert await found(resource_name="foo-1", pattern_type=PREFIXED) == set()
    matching = {literal, of_bob, wildcard, prefix}
    assert await found(resource_name="foo-1", pattern_type=PatternType.MATCH) == matching
    assert await found(pattern_type=PREFIXED) == {prefix}
    assert await found(principal="User:bob") == {of_bob}
    assert await found(host="10.0.0.1") == set()
    assert await found(operation=Operation.WRITE) == {of_bob}
    assert await found(permission=Permission.DENY) == {other}
    assert await found(resource_type=ResourceType.GROUP) == set()
    for each in everything:
        assert await found(**each._asdict()) == {each}


async def test_each_filter_is_answered_with_all_that_it_selects(parts: Parts) -> None:
    _, _, acls = parts
    await acls.create([acl("a"), acl("b")], pace())
    unknown = AclFilter(operation=Operation.UNKNOWN)
    deleted = await acls.delete([AclFilter(resource_name="a"), AclFilter(), unknown], pace())
    assert deleted == [
        [acl("a")],
        [acl("a"), acl("b")],
        TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message="Unknown entryFilter."),
    ]
    assert acls.all() == []


async def test_too_many_changes_at_once_change_nothing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, acls = parts
    monkeypatch.setattr(acl_store, "CHANGES_MAX", 3)
    many = [acl(f"t{number}") for number in range(4)]
    assert await acls.create(many, pace()) == [TOO_MANY] * 4
    assert acls.all() == []
    await acls.create(many[:3], pace())
    await acls.create(many[3:], pace())
    first = AclFilter(resource_name="t0")
    assert await acls.delete([first, AclFilter()], pace()) == [[many[0]], TOO_MANY]
    assert acls.all() == many[1:]


async def test_changes_at_the_same_time_all_take_effect(parts: Parts) -> None:
    """Kafka's testLocalConcurrentModificationOfResourceAcls."""
    store, _, acls = parts
    names = [f"t{number}" for number in range(20)]
    await asyncio.gather(*(acls.create([acl(name), acl("same")], pace()) for name in names))
    assert set(acls.all()) == {acl(name) for name in (*names, "same")}
    await asyncio.gather(*(acls.delete([AclFilter(resource_name=n)], pace()) for n in names))
    assert acls.all() == [acl("same")]
    assert len((await store.range(PREFIX)).entries) == 1


async def test_while_changes_take_effect_nothing_more_is_allowed_than_before_or_after(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, authorizer, acls = parts
    monkeypatch.setattr(acl_store, "CHANGES_PER_STEP", 1)
    seen: set[bool] = set()

    class Watching(Pace):
        @property
        def is_over(self) -> bool:
            return True

        async def rest(self) -> None:
            seen.add(may_read(authorizer, "orders"))

    both = [acl("orders"), acl("*", Permission.DENY)]
    await acls.create(both, Watching(Turns()))
    assert set(acls.all()) == set(both)
    await acls.delete([AclFilter()], Watching(Turns()))
    assert acls.all() == []
    assert seen == {False}


@pytest.mark.parametrize(
    "text", ["{", "{}", json.dumps({"resource_type": "TOPIC"}), '"TOPIC"'], ids=range(4)
)
async def test_an_unreadable_acl_stops_the_start(text: str) -> None:
    store = await EmbeddedMetadataStore.open(a_disk(), DIRECTORY)
    await store.txn((), [Put(key=f"{PREFIX}7", value=text)])
    with pytest.raises(StorageError, match="the ACL /acls/7 cannot be read"):
        await open_acls(store, CONFIG)
    await store.close()


async def test_without_an_authorizer_there_are_no_acls() -> None:
    store = await EmbeddedMetadataStore.open(a_disk(), DIRECTORY)
    assert await open_acls(store, BrokerConfig.from_texts({})) is None
    await store.close()


async def test_after_a_crash_anywhere_all_of_a_request_is_stored_or_nothing() -> None:
    random = Random(7)
    disk = a_disk()
    possible: list[set[Acl]] = [set()]
    states: list[tuple[MemoryFileSystem, list[set[Acl]]]] = []

    def crash(*_: object) -> None:
        states.extend(
            (disk.after_crash(loss, random), list(possible))
            for loss in (Loss.EVERYTHING, Loss.NOTHING, Loss.TORN)
        )

    store, _, acls = await opened(disk)
    disk.on_operation = crash

    async def step(after: set[Acl], added: Sequence[Acl], removed: AclFilter | None) -> None:
        possible.append(after)
        if removed is None:
            await acls.create(added, pace())
        else:
            await acls.delete([removed], pace())
        possible[:] = [after]

    for number in range(6):
        now = set(acls.all())
        added = [acl(f"t{number}-{each}") for each in range(3)]
        await step(now | set(added), added, None)
        if number % 2:
            gone = AclFilter(resource_name=f"t{number}", pattern_type=PatternType.MATCH)
            await step(now | set(added), [], gone)
            name = f"t{number}-1"
            left = {each for each in acls.all() if each.resource_name != name}
            await step(left, [], AclFilter(resource_name=name))
    disk.on_operation = None
    await store.close()

    assert len(states) > 50
    for crashed, expected in states:
        store, authorizer, acls = await opened(crashed)
        found = set(acls.all())
        assert found in expected
        assert all(may_read(authorizer, each.resource_name) for each in found)
        await store.close()
