"""The connections of the HTTP endpoint: how many there may be, and how long one may send nothing.

    opened --(head within HEAD_SECONDS)--> answering --> idle --(IDLE_SECONDS)--> closed
                                              ^            |
                                              +------------+   the next request

A peer that sends half a request, or none, holds its connection for `HEAD_SECONDS` at most. Where
there are `CONNECTIONS_MAX`, a new connection takes the place of the one that has been idle longest, so
no number of silent peers keeps Prometheus or a supervisor out.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

HEAD_SECONDS = 10.0
"""How soon the first request's head has to be complete."""
IDLE_SECONDS = 75.0
"""How long a connection may be kept between requests, and its peer may take to read an answer."""
CONNECTIONS_MAX = 200
SWEEP_SECONDS = 1.0


class HttpConnections:
    """Bounds the connections of one server. On the event loop."""

    __slots__ = ("_answering", "_idle_since", "_served", "_server", "_sweep")

    def __init__(self, server: web.Server) -> None:
        # Constant after construction
        self._server = server
        # State
        self._answering: set[web.RequestHandler] = set()
        """Those whose request a handler has."""
        self._served: set[web.RequestHandler] = set()
        """Those that have had an answer."""
        self._idle_since: dict[web.RequestHandler, float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_later()

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if self.open_count >= CONNECTIONS_MAX:
            oldest = min(self._idle_since, key=self._idle_since.__getitem__, default=None)
            if oldest is None:
                return _Refused()
            self._close(oldest)
        protocol: web.RequestHandler = self._server()
        self._idle_since[protocol] = asyncio.get_running_loop().time()
        return protocol

    def begin(self, request: web.BaseRequest) -> None:
        """A request's head is there; its connection is busy until `end`."""
        self._answering.add(request.protocol)
        self._idle_since.pop(request.protocol, None)

    def end(self, request: web.BaseRequest) -> None:
        """The answer to a request is made; it is still to be sent."""
        self._answering.discard(request.protocol)
        self._served.add(request.protocol)
        self._idle_since[request.protocol] = asyncio.get_running_loop().time()

    @property
    def open_count(self) -> int:
        """How many connections are open."""
        return len(self._server.connections)

    def stop(self) -> None:
        """Close no connection any more."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_silent)

    def _close_silent(self) -> None:
        """Close the connections that were idle for too long; forget those that are gone."""
        now = asyncio.get_running_loop().time()
        open_ones = set(self._server.connections)
        self._answering &= open_ones
        self._served &= open_ones
        for connection, since in tuple(self._idle_since.items()):
            patience = IDLE_SECONDS if connection in self._served else HEAD_SECONDS
            if now - since > patience:
                self._close(connection)
            elif connection not in open_ones:
                del self._idle_since[connection]
        self._sweep_later()

    def _close(self, connection: web.RequestHandler) -> None:
        """Close now: a peer that does not read must not hold what is left to send."""
        del self._idle_since[connection]
        transport = connection.transport
        connection.force_close()
        if transport is not None:
            transport.abort()


class _Refused(asyncio.Protocol):
    """A connection beyond the bound, while all others are being answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "abort")
        transport.abort()
