"""Listen for clients: bind, accept, close idle connections, stop in good order.

A connection beyond `max.connections` or `max.connections.per.ip` is closed as soon as it is
accepted, and counted. One timer looks for idle connections (`connections.max.idle.ms`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass

from server.addresses import Address, Listener
from server.connection import Connection, Shared

_log = logging.getLogger("server.listener")

IDLE_SWEEPS = 4
"""How often within the idle time connections are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """What every connection's socket is set to; buffers of -1 are left to the system."""

    backlog: int = 50
    """How many connections the kernel holds before they are accepted."""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    def apply(self, listening: socket.socket) -> None:
        """Set them on a listening socket; those that it accepts inherit them."""
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.send_buffer_bytes >= 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes >= 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


class ListenError(Exception):
    """A listener cannot be opened: one line that says which and why. Nothing listens by it."""


class Listeners:
    """All sockets that a broker listens on, and the connections that came by them."""

    __slots__ = ("_idle_s", "_options", "_servers", "_shared", "_sweep")

    def __init__(self, shared: Shared, *, idle_ms: int, options: SocketOptions) -> None:
        """`idle_ms` at or below 0 keeps idle connections for ever."""
        self._options = options
        self._shared = shared
        self._idle_s = idle_ms / 1000
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None

    async def open(self, listener: Listener) -> Address:
        """Listen, and return what clients are told, with the port that the system chose for 0.

        Raises:
            ListenError: the address is not ours, in use or forbidden.
        """
        loop = asyncio.get_running_loop()
        advertised: list[Address] = []
        try:
            server = await loop.create_server(
                lambda: Connection(self._shared, advertised[0]),
                host=listener.bind.host or None,
                port=listener.bind.port,
                reuse_address=True,
                backlog=self._options.backlog,
                start_serving=False,
            )
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ListenError(f"cannot listen on {listener.bind}: {why}") from error
        for listening in server.sockets:
            self._options.apply(listening)
        advertised.append(listener.advertised_at(server.sockets[0].getsockname()[1]))
        await server.start_serving()
        self._servers.append(server)
        self._start_sweeping(loop)
        _log.info("listening on %s, advertised as %s", listener.bind, advertised[0])
        return advertised[0]

    async def stop(self, *, grace_s: float) -> None:
        """Accept no more, answer what was received, close; after `grace_s` close the rest."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for server in self._servers:
            server.close()
        stopping = [asyncio.ensure_future(each.stop()) for each in self._shared.connections]
        if stopping:
            await asyncio.wait(stopping, timeout=grace_s)
        for connection in tuple(self._shared.connections):
            connection.close("the broker stops")
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def _start_sweeping(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._idle_s > 0 and self._sweep is None:
            self._sweep = loop.call_later(self._idle_s / IDLE_SWEEPS, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections that were idle for too long, and look again later."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() - self._idle_s
        for connection in tuple(self._shared.connections):
            if connection.is_idle_since(limit_s):
                connection.close("idle for connections.max.idle.ms")
        self._sweep = loop.call_later(self._idle_s / IDLE_SWEEPS, self._close_idle)
