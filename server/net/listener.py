"""Listens for clients: binds, accepts, closes idle connections, drains connections on a stop.

A connection beyond `max.connections` or `max.connections.per.ip` is closed as soon as it is accepted,
and a metric counts it. One timer closes idle connections (`connections.max.idle.ms`). Another timer,
while memory for requests or answers is short, closes connections that hold some of it and move no
bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass

from server.config.addresses import Address, Listener
from server.net.connection import Connection, Shared
from server.net.limits import Reader
from server.runtime.tasks import awaited, call_later, guarded

_log = logging.getLogger("server.net.listener")

IDLE_SWEEPS = 4
"""How many sweeps run within the idle time."""

STALL_SECONDS = 5.0
"""While others wait for memory, a connection that holds some and moves no bytes this long is closed."""
EXEMPT_SECONDS = 30.0
"""How long a connection may read a request beyond the memory bound while others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Socket options for every connection; buffers of -1 keep the system's size."""

    backlog: int = 50
    """How many connections the kernel queues before the broker accepts them."""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    def apply(self, listening: socket.socket) -> None:
        """Set the options on a listening socket; accepted sockets inherit them."""
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.send_buffer_bytes >= 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes >= 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


class ListenError(Exception):
    """A listener cannot be opened. The text is one line that names the listener and the reason."""


class Listeners:
    """All listening sockets of a broker, with the sweeps over their connections."""

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
        """Listen on an address. Returns the address to advertise, with the actual port instead of 0.

        Raises:
            ListenError: the address does not belong to this machine, is in use or forbidden.
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
        """Stop accepting, answer the received requests and close; after `grace_s`, abort the rest."""
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
        """Close connections that were idle for too long, and schedule the next sweep."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() - self._idle_s
        for connection in tuple(self._shared.connections):
            with guarded("idle sweep"):
                if connection.is_idle_since(limit_s):
                    connection.close("idle for connections.max.idle.ms")
        self._sweep = call_later(self._idle_s / IDLE_SWEEPS, "idle sweep", self._close_idle)

    def _close_stalled(self) -> None:
        """Close stalled connections while memory is short, and schedule the next sweep."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        memory, answers = self._shared.memory, self._shared.answers
        if memory.is_short or answers.is_short:
            for connection in tuple(self._shared.connections):
                with guarded("stall sweep"):
                    if connection.is_stalled_since(now_s - STALL_SECONDS):
                        connection.close("stalled while it holds memory that others wait for")
        if memory.exempt is not self._exempt:
            self._exempt, self._exempt_since_s = memory.exempt, now_s
        is_late = now_s - self._exempt_since_s > EXEMPT_SECONDS
        if memory.is_short and is_late and isinstance(self._exempt, Connection):
            self._exempt.close("its request took too long to arrive while memory is short")
        self._stall_sweep = call_later(
            STALL_SECONDS / IDLE_SWEEPS, "stall sweep", self._close_stalled
        )
