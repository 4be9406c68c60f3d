"""Limits on connections over real sockets: by listener, by address, by rate, and for silent ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.runtime.turns import Pace
from server.security.quotas.quota_entity import QuotaEntity
from tests.harness.connection_server import echo, serving, until
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker, serving_broker

BROKER, SET = 4, 0
LISTENERS = {
    "listeners": "INTERNAL://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener_security_protocol_map": "INTERNAL:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


async def ping(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    await client.call(request, 3, ApiVersionsResponse)


async def set_config(client: RawClient, name: str, value: str, *, node: str = "") -> int:
    resource = AlterConfigsResource(
        resource_type=BROKER,
        resource_name=node,
        configs=(AlterableConfig(config_operation=SET, name=name, value=value),),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (answer,) = (await client.call(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code


async def test_a_listener_has_its_own_limit_and_the_others_do_not(tmp_path: Path) -> None:
    limit = {"listener_name_outside_max_connections": "1"}
    async with serving_broker(tmp_path, **LISTENERS, **limit) as served:
        first = await served.connect("OUTSIDE")
        await ping(first)
        assert await (await served.connect("OUTSIDE")).is_closed()
        for _ in range(3):
            await ping(await served.connect("INTERNAL"))
        first.close()
        await until(lambda: served.broker.listening.limits.count == 3)
        await ping(await served.connect("OUTSIDE"))


async def test_the_limit_of_a_listener_changes_while_the_broker_runs(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **LISTENERS) as served:
        admin = await served.connect("INTERNAL")
        await ping(await served.connect("OUTSIDE"))
        node = str(served.broker.node.node_id)
        limit = "listener.name.outside.max.connections"
        assert await set_config(admin, limit, "1", node=node) == ErrorCode.NONE
        assert await (await served.connect("OUTSIDE")).is_closed()
        assert await set_config(admin, limit, "2", node=node) == ErrorCode.NONE
        await ping(await served.connect("OUTSIDE"))


async def test_an_address_has_its_own_limit_while_the_broker_runs(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, max_connections_per_ip="1") as served:
        first = await served.connect()
        await ping(first)
        assert await (await served.connect()).is_closed()
        overrides = "max.connections.per.ip.overrides"
        assert await set_config(first, overrides, "127.0.0.1:2") == ErrorCode.NONE
        await ping(await served.connect())
        assert await (await served.connect()).is_closed()
        assert await set_config(first, overrides, "127.0.0.1") == ErrorCode.INVALID_REQUEST


async def test_connections_beyond_the_rate_wait_for_their_turn(tmp_path: Path) -> None:
    async with serving_broker(
        tmp_path, quota_window_num="1", max_connection_creation_rate="1"
    ) as served:
        for client in [await served.connect() for _ in range(3)]:
            await ping(client)
        counts = served.broker.probe.listeners["PLAINTEXT"]
        assert counts.delayed >= 1
        assert counts.delayed_seconds > 0
        assert counts.refused == 0


async def test_the_rate_changes_while_the_broker_runs(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        client = await served.connect()
        await ping(client)
        assert not served.broker.listening.rates.are_bound
        assert await set_config(client, "max.connection.creation.rate", "3") == ErrorCode.NONE
        assert served.broker.listening.rates.are_bound


async def limit_address(served: ServedBroker, value: float | None, name: str | None) -> None:
    entity = QuotaEntity.of([("ip", name)])
    change = (entity, {"connection_creation_rate": value})
    await served.broker.quota_store.alter([change], Pace(served.broker.turns))


@pytest.mark.parametrize("name", ["127.0.0.1", None])
async def test_an_address_beyond_its_rate_is_closed_and_admitted_later(
    tmp_path: Path, name: str | None
) -> None:
    async with serving_broker(tmp_path) as served:
        await limit_address(served, 1.0, name)
        for _ in range(10):
            await ping(await served.connect())
        refused = await served.connect()
        assert await refused.is_closed()
        assert served.broker.probe.listeners["PLAINTEXT"].refused == 1
        await until(lambda: served.broker.listening.limits.count == 10)
        await limit_address(served, None, name)
        await ping(await served.connect())


async def test_quotas_of_addresses_hold_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await limit_address(served, 1.0, None)
    async with serving_broker(tmp_path) as served:
        assert served.broker.listening.rates.are_bound


async def test_a_connection_that_sends_no_request_is_closed(tmp_path: Path) -> None:
    async with serving(echo) as server:
        silent, slow, quick = [await server.connect() for _ in range(3)]
        slow.send_bytes(b"\0\0\0\5hal")
        quick.send_frame(b"x")
        assert await quick.receive_frame() == b"x"
        assert len(server.shared.newcomers) == 2

        server.listeners._close_silent(asyncio.get_running_loop().time() + 1)

        assert await silent.is_closed()
        assert await slow.is_closed()
        quick.send_frame(b"y")
        assert await quick.receive_frame() == b"y"
        assert not server.shared.newcomers


async def test_newer_connections_have_more_time(tmp_path: Path) -> None:
    async with serving(echo) as server:
        await server.connect()
        await until(lambda: len(server.shared.newcomers) == 1)
        server.listeners._close_silent(next(iter(server.shared.newcomers)).opened_s - 1)
        assert len(server.shared.newcomers) == 1


def test_a_connection_waits_for_its_turn_on_the_loop_that_serves(tmp_path: Path) -> None:
    """uvloop's transports begin to read only after `connection_made`."""

    async def run() -> None:
        async with serving_broker(
            tmp_path, quota_window_num="1", max_connection_creation_rate="1"
        ) as served:
            await ping(await served.connect())
            await ping(await served.connect())
            assert served.broker.probe.listeners["PLAINTEXT"].delayed >= 1

    uvloop.run(run())
