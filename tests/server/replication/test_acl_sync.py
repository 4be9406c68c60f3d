"""ACLs of a source's topics go along to their mirrors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from server.client.errors import ClientFailed
from server.replication import link as link_module
from server.replication.acl_sync import LINK_ACLS, NO_AUTHORIZER, AclSync, _parts
from server.security.acls import Acl, Operation, PatternType, ResourceType
from storage.files.errors import NoSpace
from tests.harness.authorized_broker import allow, authorizing_broker, deny, set_acls
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.server.replication.test_mirroring import (
    LINK,
    link,
    status,
    until,
    until_equal,
    until_slot,
)

EVERYONE = {"super_users": "User:ANONYMOUS"}
READ = allow(ResourceType.TOPIC, "t", Operation.READ, "User:reader")
NO_WRITE = deny(ResourceType.TOPIC, "t", Operation.WRITE, "User:reader")
PREFIXED = allow(ResourceType.TOPIC, "t", Operation.DESCRIBE, "User:x")._replace(
    pattern_type=PatternType.PREFIXED
)
OTHERS = [
    allow(ResourceType.TOPIC, "other", Operation.READ, "User:reader"),
    allow(ResourceType.TOPIC, "*", Operation.READ, "User:reader"),
    allow(ResourceType.GROUP, "t", Operation.READ, "User:reader"),
]
LOCAL = allow(ResourceType.TOPIC, "t", Operation.ALTER, "User:here")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the source often."""
    monkeypatch.setattr(link_module, "REFRESH_SECONDS", 0.05)
    monkeypatch.setattr(link_module, "SLOTS_SECONDS", 0.02)


@asynccontextmanager
async def linked(
    tmp_path: Path, **settings: Any
) -> AsyncIterator[tuple[ServedBroker, ServedBroker]]:
    """Yields a source with a topic, and the broker that mirrors it."""
    async with (
        authorizing_broker(tmp_path / "source", **EVERYONE) as source,
        authorizing_broker(tmp_path / "target", **EVERYONE) as target,
    ):
        await source.create("t")
        await set_acls(target, [LOCAL])
        await set_acls(source, [READ, NO_WRITE, PREFIXED, *OTHERS])
        await link(target, source, acls=True, **settings)
        await until_equal(source, target)
        yield source, target


def acls(served: ServedBroker) -> set[Acl]:
    assert served.broker.acls is not None
    return set(served.broker.acls.all())


async def until_acls(target: ServedBroker, *expected: Acl) -> None:
    await until(lambda: acls(target) == set(expected), lambda: (acls(target), status(target)))


async def test_acls_of_mirrored_topics_come_and_go_with_the_sources(tmp_path: Path) -> None:
    async with linked(tmp_path) as (source, target):
        await until_acls(target, READ, NO_WRITE, PREFIXED, LOCAL)
        await set_acls(source, [READ, LOCAL])
        await until_acls(target, READ, LOCAL)
        await set_acls(source, [])
        await until_acls(target, LOCAL)
        assert status(target)["acls_here"]["problem"] == ""


async def test_what_a_link_has_created_is_known_after_a_restart(tmp_path: Path) -> None:
    async with linked(tmp_path) as (source, target):
        await until_acls(target, READ, NO_WRITE, PREFIXED, LOCAL)
        await target.broker.replication.pause(LINK, is_paused=True)
        await set_acls(source, [NO_WRITE])
        await target.broker.replication.stop()
        restarted = type(target.broker.replication)(
            target.broker.replication._store,
            target.broker.topics,
            target.broker.replication._make_link,
            target.broker.replication._finish_log,
        )
        await restarted.open()
        await restarted.pause(LINK, is_paused=False)
        try:
            await until_acls(target, NO_WRITE, LOCAL)
        finally:
            await restarted.stop()


async def test_acls_of_a_promoted_topic_stay(tmp_path: Path) -> None:
    async with linked(tmp_path) as (source, target):
        await until_acls(target, READ, NO_WRITE, PREFIXED, LOCAL)
        await target.broker.replication.promote("t", is_forced=True)
        await until(lambda: status(target)["acls_here"]["acls"] == 0, lambda: status(target))
        await set_acls(source, [])
        synced_ms = status(target)["acls_here"]["synced_ms"]
        await until(lambda: status(target)["acls_here"]["synced_ms"] > synced_ms + 1)
        await target.broker.replication.delete(LINK)
        assert acls(target) == {READ, NO_WRITE, PREFIXED, LOCAL}
        store = target.broker.replication._store
        assert await store.get(LINK_ACLS + LINK) is None


async def test_a_source_that_refuses_removes_nothing_here_and_stops_no_copy(
    tmp_path: Path,
) -> None:
    async with linked(tmp_path) as (source, target):
        await until_acls(target, READ, NO_WRITE, PREFIXED, LOCAL)
        source.broker.acls = None
        await until(lambda: status(target)["acls_here"]["problem"] != "", lambda: status(target))
        assert "No Authorizer" in status(target)["acls_here"]["problem"]
        assert acls(target) == {READ, NO_WRITE, PREFIXED, LOCAL}
        await source.produce("t")
        await until_equal(source, target)


async def test_without_an_authorizer_here_the_link_says_so(tmp_path: Path) -> None:
    async with (
        serving_broker(tmp_path / "source") as source,
        serving_broker(tmp_path / "target") as target,
    ):
        await source.create("t")
        await link(target, source, acls=True)
        await until_equal(source, target)
        await until(
            lambda: status(target)["acls_here"]["problem"] == NO_AUTHORIZER, lambda: status(target)
        )


@pytest.mark.parametrize(
    "failure", [ClientFailed("it does not support DescribeAcls"), NoSpace("write", "x", 28, "full")]
)
async def test_acls_that_cannot_be_synced_stop_no_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async with linked(tmp_path) as (source, target):
        await until_acls(target, READ, NO_WRITE, PREFIXED, LOCAL)

        async def fail(*_: object) -> None:
            raise failure

        monkeypatch.setattr(AclSync, "_follow", fail)
        await until(lambda: status(target)["acls_here"]["problem"] != "", lambda: status(target))
        await source.produce("t")
        await until_slot(source, source.log("t").log_end_offset)
        assert status(target)["reason"] == ""
        assert acls(target) == {READ, NO_WRITE, PREFIXED, LOCAL}


def test_denials_are_created_first_and_removed_last() -> None:
    together = [READ, NO_WRITE, PREFIXED]

    assert _parts(together, denials_first=True)[0][0] == NO_WRITE
    assert _parts(together, denials_first=False)[-1][-1] == NO_WRITE
