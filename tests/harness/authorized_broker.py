"""A broker with an authorizer, and clients that are whom the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from server.config.authorization_config import AUTHORIZERS
from server.runtime.turns import Pace
from server.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from server.security.principal import Principal
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker, serving_broker

SUPER = Principal.parse("User:admin")


@asynccontextmanager
async def authorizing_broker(directory: Path, **properties: str) -> AsyncIterator[ServedBroker]:
    """Run a broker with an authorizer and the super user `SUPER`."""
    texts = {"authorizer_class_name": AUTHORIZERS[0], "super_users": str(SUPER)} | properties
    async with serving_broker(directory, **texts) as served:
        yield served


async def connect_as(served: ServedBroker, principal: Principal) -> RawClient:
    """Returns a connection whose client is authenticated as a principal."""
    client = await served.connect()
    listeners = served.broker.listening._listeners
    assert listeners is not None
    await client.call(ApiVersionsRequest(), 0, ApiVersionsResponse)  # the broker has accepted it
    port = client._writer.get_extra_info("sockname")[1]
    (connection,) = [each for each in listeners._shared.connections if each.client_port == port]
    connection.principal = principal
    return client


async def set_acls(served: ServedBroker, acls: Iterable[Acl]) -> None:
    """Replace all ACLs."""
    store = served.broker.acls
    assert store is not None
    pace = Pace(served.broker.turns)
    await store.delete([AclFilter()], pace)
    assert set(await store.create(list(acls), pace)) <= {None}


def allow(
    kind: ResourceType, name: str, operation: Operation, principal: str = "User:ANONYMOUS"
) -> Acl:
    """Returns an ACL that allows an operation on one resource, or on every one (`*`)."""
    return Acl(
        kind, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW
    )  # fmt: skip


def deny(
    kind: ResourceType, name: str, operation: Operation, principal: str = "User:ANONYMOUS"
) -> Acl:
    """Returns an ACL that denies an operation on one resource, or on every one (`*`)."""
    return Acl(
        kind, name, PatternType.LITERAL, principal, "*", operation, Permission.DENY
    )  # fmt: skip
