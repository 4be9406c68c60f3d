"""Listens for clients: binds, accepts, closes idle connections, drains connections on a stop.

A connection beyond `max.connections` or `max.connections.per.ip` is closed as soon as it is accepted,
and a metric counts it. Where there are SASL listeners, a timer closes connections whose login takes too
long. One timer closes idle connections (`connections.max.idle.ms`). Another timer closes new connections
that send no request, and, while memory for requests or answers is short, connections that hold some of
it and move no bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.config.listeners.addresses import Address, Listener
from server.net.connection import Connection, Identify
from server.net.limits import Reader
from server.net.shared import Shared
from server.net.tls_handshake import TlsHandshake
from server.net.tls_transport import SHUTDOWN_SECONDS
from server.runtime.tasks import awaited, call_later, guarded
from server.security.principal import ANONYMOUS
from server.security.sasl.logins import LOGIN_SECONDS_MAX
from server.security.sasl.session import LoginTimeout

if TYPE_CHECKING:
    from server.security.tls_listener import TlsListener

_log = logging.getLogger("server.net.listener")

IDLE_SWEEPS = 4
"""How many sweeps run within the idle time."""

STALL_SECONDS = 5.0
"""While others wait for memory, a connection that holds some and moves no bytes this long is closed."""
CLOSING_CHECK_SECONDS = 0.01
"""How often a stop looks whether connections with TLS have ended."""
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
        "_first_request_s",
        "_idle_s",
        "_login_sweep",
        "_options",
        "_servers",
        "_shared",
        "_stall_sweep",
        "_sweep",
        "_unfinished",
    )

    def __init__(
        self,
        shared: Shared,
        *,
        idle_ms: int,
        options: SocketOptions,
        first_request_ms: int = 0,
    ) -> None:
        """
        Args:
            idle_ms: how long a connection may be idle; for ever at or below 0.
            first_request_ms: how long a new connection may take for its first request; 0: for ever.
        """
        self._options = options
        self._shared = shared
        self._idle_s = idle_ms / 1000
        self._first_request_s = first_request_ms / 1000
        self._servers: list[asyncio.Server] = []
        self._unfinished: set[TlsHandshake] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._stall_sweep: asyncio.TimerHandle | None = None
        self._login_sweep: asyncio.TimerHandle | None = None
        self._exempt: Reader | None = None
        self._exempt_since_s = 0.0

    async def open(self, listener: Listener, tls: TlsListener | None = None) -> Address:
        """Listen on an address. Returns the address to advertise, with the actual port instead of 0.

        Args:
            tls: the certificates of the listener; None if its protocol has no TLS.

        Raises:
            ListenError: the address does not belong to this machine, is in use or forbidden.
        """
        loop = asyncio.get_running_loop()
        advertised: list[Address] = []
        try:
            server = await loop.create_server(
                self._protocols(listener, tls, lambda: advertised[0]),
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

    def _protocols(
        self, listener: Listener, tls: TlsListener | None, endpoint: Callable[[], Address]
    ) -> Callable[[], asyncio.BaseProtocol]:
        """Returns what makes the protocol object of each accepted connection."""

        def connection(identify: Identify = lambda _: ANONYMOUS) -> Connection:
            return Connection(self._shared, endpoint(), listener.security_protocol, identify)

        assert (tls is not None) == listener.security_protocol.has_tls
        if tls is None:
            return connection
        return lambda: TlsHandshake(
            self._shared, tls, self._unfinished, endpoint=endpoint, connection=connection
        )

    async def stop(self, *, grace_s: float) -> None:
        """Stop accepting, answer the received requests and close; after `grace_s`, abort the rest."""
        for timer in (self._sweep, self._stall_sweep, self._login_sweep):
            if timer is not None:
                timer.cancel()
        self._sweep = self._stall_sweep = self._login_sweep = None
        for server in self._servers:
            server.close()
        for handshake in tuple(self._unfinished):
            handshake.cancel()
        stopping = [awaited(each.stop()) for each in self._shared.connections]
        if stopping:
            await asyncio.wait(stopping, timeout=grace_s)
        for connection in tuple(self._shared.connections):
            connection.close("the broker stops")
        await self._wait_for_tls()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        self._shared.sender.close()

    async def _wait_for_tls(self) -> None:
        """Wait until the transports of connections with TLS are empty; servers await only others."""
        deadline_s = asyncio.get_running_loop().time() + SHUTDOWN_SECONDS + 1
        while asyncio.get_running_loop().time() < deadline_s and any(  # noqa: ASYNC110
            each.security_protocol.has_tls for each in self._shared.connections
        ):
            await asyncio.sleep(CLOSING_CHECK_SECONDS)

    def _start_sweeping(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._idle_s > 0 and self._sweep is None:
            self._sweep = call_later(self._idle_s / IDLE_SWEEPS, "idle sweep", self._close_idle)
        if self._stall_sweep is None:
            self._stall_sweep = call_later(
                STALL_SECONDS / IDLE_SWEEPS, "stall sweep", self._close_stalled
            )
        if self._shared.logins is not None and self._login_sweep is None:
            self._close_overdue_logins()

    def _close_overdue_logins(self) -> None:
        """Close connections whose login takes too long, and schedule the next sweep."""
        logins = self._shared.logins
        assert logins is not None
        for connection in tuple(self._shared.connections):
            with guarded("login sweep"):
                if connection.sasl is not None and logins.is_overdue(connection.sasl):
                    connection.refuse(LoginTimeout("the client did not authenticate in time"))
        self._login_sweep = call_later(
            LOGIN_SECONDS_MAX / IDLE_SWEEPS, "login sweep", self._close_overdue_logins
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

    def _close_silent(self, limit_s: float) -> None:
        """Close connections that were opened before `limit_s` and have not sent a whole request."""
        for connection in tuple(self._shared.newcomers):
            if connection.opened_s > limit_s:
                return
            with guarded("newcomer sweep"):
                if not connection.is_muted:
                    connection.close("no request within connections.first.request.timeout.ms")

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
        if self._first_request_s > 0:
            self._close_silent(now_s - self._first_request_s)
        if memory.exempt is not self._exempt:
            self._exempt, self._exempt_since_s = memory.exempt, now_s
        is_late = now_s - self._exempt_since_s > EXEMPT_SECONDS
        if memory.is_short and is_late and isinstance(self._exempt, Connection):
            self._exempt.close("its request took too long to arrive while memory is short")
        self._stall_sweep = call_later(
            STALL_SECONDS / IDLE_SWEEPS, "stall sweep", self._close_stalled
        )
