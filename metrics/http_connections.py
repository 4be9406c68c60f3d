"""The connections of the HTTP endpoint, with bounds on their number and their idle time.

    opened --(head within HEAD_SECONDS)--> answering --> idle --(IDLE_SECONDS)--> closed
                                              ^            |
                                              +------------+   the next request

A client that sends half a request, or none, holds its connection for at most `HEAD_SECONDS`. If there
are `CONNECTIONS_MAX` connections, a new one replaces the one that has been idle longest, so that no
number of silent clients keeps Prometheus or a supervisor out.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

HEAD_SECONDS = 10.0
"""Time limit for the head of the first request."""
IDLE_SECONDS = 75.0
"""Time limit between two requests of a connection, and for its client to read an answer."""
CONNECTIONS_MAX = 200
SWEEP_SECONDS = 1.0


class HttpConnections:
    """Bounds the connections of one server. Lives on the event loop."""

    __slots__ = ("_answering", "_idle_since", "_served", "_server", "_sweep")

    def __init__(self, server: web.Server) -> None:
        # Constant after construction
        self._server = server
        # State
        self._answering: set[web.RequestHandler] = set()
        """Connections whose request a handler is answering."""
        self._served: set[web.RequestHandler] = set()
        """Connections that have received an answer."""
        self._idle_since: dict[web.RequestHandler, float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_later()

    def accept(self) -> asyncio.Protocol:
        """Returns the protocol for a new connection."""
        if self.open_count >= CONNECTIONS_MAX:
            oldest = min(self._idle_since, key=self._idle_since.__getitem__, default=None)
            if oldest is None:
                return _Refused()
            self._close(oldest)
        protocol: web.RequestHandler = self._server()
        self._idle_since[protocol] = asyncio.get_running_loop().time()
        return protocol

    def begin(self, request: web.BaseRequest) -> None:
        """Mark a connection as busy, from a request's head until `end`."""
        self._answering.add(request.protocol)
        self._idle_since.pop(request.protocol, None)

    def end(self, request: web.BaseRequest) -> None:
        """Mark a connection as idle when its answer is ready; the answer is still to be sent."""
        self._answering.discard(request.protocol)
        self._served.add(request.protocol)
        self._idle_since[request.protocol] = asyncio.get_running_loop().time()

    @property
    def open_count(self) -> int:
        """Number of open connections."""
        return len(self._server.connections)

    def stop(self) -> None:
        """Stop closing idle connections."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_silent)

    def _close_silent(self) -> None:
        """Close the connections that were idle for too long; forget closed ones."""
        now = asyncio.get_running_loop().time()
        open_ones = set(self._server.connections)
        self._answering &= open_ones
        self._served &= open_ones
        for connection in open_ones - self._answering:
            # `accept` has recorded most of them; the others opened after a sweep had forgotten them.
            self._idle_since.setdefault(connection, now)
        for connection, since in tuple(self._idle_since.items()):
            patience = IDLE_SECONDS if connection in self._served else HEAD_SECONDS
            if connection not in open_ones:
                # Closed, or accepted a moment ago and not open yet.
                del self._idle_since[connection]
            elif now - since > patience:
                self._close(connection)
        self._sweep_later()

    def _close(self, connection: web.RequestHandler) -> None:
        """Close at once: unsent data must not wait for a client that does not read."""
        del self._idle_since[connection]
        transport = connection.transport
        connection.force_close()
        if transport is not None:
            transport.abort()


class _Refused(asyncio.Protocol):
    """A connection beyond the bound while all others are busy: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "abort")
        transport.abort()
