"""Listeners: addresses, connection limits, idle connections."""

from __future__ import annotations

import asyncio
import socket

import pytest

from server.config.listeners.addresses import Address, Listener
from server.net.listener import ListenError
from tests.harness.connection_server import echo, serving, until


async def test_a_free_port_is_taken_for_port_0_and_advertised() -> None:
    async with serving(echo) as server:
        bind = Address(name="OUTSIDE", host="127.0.0.1", port=0)
        told = Address(name="OUTSIDE", host="kafka.example", port=0)
        opened = await server.listeners.open(Listener(bind=bind, advertised=told))
        assert opened.host == "kafka.example"
        assert opened.port not in (0, server.port)


async def test_a_port_in_use_gives_one_clear_line() -> None:
    async with serving(echo) as server:
        taken = Address(name="PLAINTEXT", host="127.0.0.1", port=server.port)
        with pytest.raises(ListenError) as raised:
            await server.listeners.open(Listener(bind=taken, advertised=taken))
        expected = f"cannot listen on PLAINTEXT://127.0.0.1:{server.port}: Address already in use"
        assert str(raised.value) == expected


async def test_an_address_that_is_not_ours_gives_one_clear_line() -> None:
    async with serving(echo) as server:
        foreign = Address(name="PLAINTEXT", host="192.0.2.1", port=0)
        with pytest.raises(ListenError, match=r"192\.0\.2\.1:0: Cannot assign requested address"):
            await server.listeners.open(Listener(bind=foreign, advertised=foreign))


async def test_connections_do_not_wait_for_more_to_send() -> None:
    async with serving(echo) as server:
        await server.connect()
        await until(lambda: len(server.shared.connections) == 1)
        (connection,) = server.shared.connections
        assert connection._transport is not None
        descriptor = connection._transport.get_extra_info("socket").fileno()
        with socket.socket(fileno=socket.dup(descriptor)) as same:
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.parametrize("limit", ["connections_max", "connections_per_ip_max"])
async def test_connections_beyond_a_limit_are_closed_and_counted(limit: str) -> None:
    async with serving(echo, **{limit: 2}) as server:  # type: ignore[arg-type]
        first, second = await server.connect(), await server.connect()
        await until(lambda: server.counts == (2, 0, 0))

        third = await server.connect()
        assert await third.is_closed()
        assert server.counts == (2, 0, 1)

        first.close()
        await until(lambda: server.counts[0] == 1)
        fourth = await server.connect()
        for client in (second, fourth):
            client.send_frame(b"still served")
            assert await client.receive_frame() == b"still served"


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async with serving(echo, idle_ms=1000) as server:
        idle, busy = await server.connect(), await server.connect()
        closed = asyncio.ensure_future(idle.is_closed())
        while not closed.done():
            busy.send_frame(b"x")
            assert await busy.receive_frame() == b"x"
            await asyncio.sleep(0.02)
        assert closed.result()
        busy.send_frame(b"still served")
        assert await busy.receive_frame() == b"still served"


async def test_a_client_that_reads_nothing_for_the_idle_time_is_closed() -> None:
    async def handle(frame: bytearray, connection: object) -> list[bytes | object]:
        return [bytes(4) * (4 << 20)]

    async with serving(handle, idle_ms=100) as server:  # type: ignore[arg-type]
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"\0\0\0\1x")
            await until(lambda: server.counts[0] == 1)
            await until(lambda: server.counts[0] == 0)
