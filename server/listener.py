"""Listen for clients: bind, accept, close idle connections, stop in good order.

A connection beyond `max.connections` or `max.connections.per.ip` is closed as soon as it is
accepted, and counted. One timer looks for idle connections (`connections.max.idle.ms`). Another one
closes, where memory for requests or answers is short, those whose peers hold some and move nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass

from server.addresses import Address, Listener
from server.connection import Connection, Shared
from server.limits import Reader
from server.tasks import awaited, call_later, guarded

_log = logging.getLogger("server.listener")

IDLE_SWEEPS = 4
"""How often within the idle time connections are looked at."""

STALL_SECONDS = 5.0
"""While others wait for memory, a connection that holds some may move nothing for so long."""
EXEMPT_SECONDS = 30.0
"""So long a connection may read a request for which there is no room, while others wait."""


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

    __slots__ = (
        "_exempt",
        "_exempt_since_s",
        "_idle_s",
        "_options",
        "_servers",
        "_shared",
        "_stall_sweep",
        "_sweep",
    )

    def __init__(self, shared: Shared, *, idle_ms: int, options: SocketOptions) -> None:
        """`idle_ms` at or below 0 keeps idle connections for ever."""
        self._options = options
        self._shared = shared
        self._idle_s = idle_ms / 1000
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._stall_sweep: asyncio.TimerHandle | None = None
        self._exempt: Reader | None = None
        self._exempt_since_s = 0.0

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
        for timer in (self._sweep, self._stall_sweep):
            if timer is not None:
                timer.cancel()
        self._sweep = self._stall_sweep = None
        for server in self._servers:
            server.close()
        stopping = [awaited(each.stop()) for each in self._shared.connections]
        if stopping:
            await asyncio.wait(stopping, timeout=grace_s)
        for connection in tuple(self._shared.connections):
            connection.close("the broker stops")
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def _start_sweeping(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._idle_s > 0 and self._sweep is None:
            self._sweep = call_later(self._idle_s / IDLE_SWEEPS, "idle sweep", self._close_idle)
        if self._stall_sweep is None:
            self._stall_sweep = call_later(
                STALL_SECONDS / IDLE_SWEEPS, "stall sweep", self._close_stalled
            )

    def _close_idle(self) -> None:
        """Close connections that were idle for too long, and look again later."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() - self._idle_s
        for connection in tuple(self._shared.connections):
            with guarded("idle sweep"):
                if connection.is_idle_since(limit_s):
                    connection.close("idle for connections.max.idle.ms")
        self._sweep = call_later(self._idle_s / IDLE_SWEEPS, "idle sweep", self._close_idle)

    def _close_stalled(self) -> None:
        """Close what holds memory that others wait for and does not move; look again later."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        memory, answers = self._shared.memory, self._shared.answers
        if memory.is_short or answers.is_short:
            for connection in tuple(self._shared.connections):
                with guarded("stall sweep"):
                    if connection.is_stalled_since(now_s - STALL_SECONDS):
                        connection.close("it holds memory that others wait for, and moves nothing")
        if memory.exempt is not self._exempt:
            self._exempt, self._exempt_since_s = memory.exempt, now_s
        is_late = now_s - self._exempt_since_s > EXEMPT_SECONDS
        if memory.is_short and is_late and isinstance(self._exempt, Connection):
            self._exempt.close("its request takes too long to arrive while memory is short")
        self._stall_sweep = call_later(
            STALL_SECONDS / IDLE_SWEEPS, "stall sweep", self._close_stalled
        )
