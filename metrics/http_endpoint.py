"""The HTTP endpoint: `/metrics` for Prometheus, `/health/...` for supervisors, and the given routes.

GET /                    200, the list of all routes, a line each
GET /metrics             200, Prometheus' text; with gzip for a client that accepts it
GET /health/live         200 while the process answers at all
GET /health/ready        200 while the broker serves, else 503 with the reason
GET /v1/status/ready     the same, at Redpanda's path

The guard checks each request before its route is looked up and may refuse it (403); `access` answers or
refuses it once its route is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import aiohttp
from aiohttp import web

from metrics.collector import Scraper
from metrics.content_coding import accepts_gzip
from metrics.http_connections import HttpConnections

_log = logging.getLogger("metrics.http_endpoint")
_library_log = logging.getLogger("metrics.http_endpoint.library")
_library_log.addHandler(logging.NullHandler())
_library_log.propagate = False
"""aiohttp logs a traceback for each malformed request. The client gets its 400, which is enough."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SHUTDOWN_SECONDS = 1.0

CONTINUE = "100-continue"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Guard = Callable[[web.BaseRequest], str | None]
"""Returns the reason to refuse a request, in one sentence; None to accept it."""
RouteHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Access = Callable[[web.Request, RouteHandler], Awaitable[web.StreamResponse]]
"""Answers a request by the handler of its route, or refuses it."""
MakeProtocol = Callable[[], asyncio.Protocol]


class Tls(Protocol):
    """Encrypts connections."""

    def over(self, make: MakeProtocol) -> MakeProtocol:
        """Returns what creates the protocols of accepted connections, which TLS has yet to begin."""

    def stop(self) -> None:
        """Give up the handshakes that are not finished."""


RunInThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]


class HttpEndpoint:
    """Serves metrics and health on one address. Lives on the loop; scrapes run in a thread."""

    def __init__(
        self,
        scraper: Scraper,
        *,
        not_ready: Callable[[], str | None],
        run_in_thread: RunInThread,
        guard: Guard = lambda _: None,
        access: Access | None = None,
        tls: Tls | None = None,
        routes: Iterable[web.RouteDef] = (),
    ) -> None:
        """
        Args:
            not_ready: returns the reason why the broker does not serve, None while it does.
            run_in_thread: runs a scrape off the loop.
            guard: checks every request.
            access: checks every request once its route is known.
            tls: encrypts the connections.
            routes: further routes to serve.
        """
        # Constant after construction
        self._scraper = scraper
        self._routes = tuple(routes)
        self._not_ready = not_ready
        self._run_in_thread = run_in_thread
        self._guard = guard
        self._access = access
        self._tls = tls
        # Made by `open`
        self._runner: web.AppRunner | None = None
        self._connections: HttpConnections | None = None
        self._answer_by_route: Handler
        self._listening: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen. Returns the port, which the system chose if `port` is 0.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        app = web.Application()
        app.add_routes(self._checked(each) for each in (*self._own_routes(), *self._routes))
        self._runner = web.AppRunner(
            app, access_log=None, logger=_library_log, shutdown_timeout=SHUTDOWN_SECONDS
        )
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._connections = HttpConnections(server)
        self._answer_by_route = server.request_handler
        # Wraps the router, so that the guard refuses a bad request before its route is looked up.
        server.request_handler = self._answer
        accept: MakeProtocol = self._connections.accept
        if self._tls is not None:
            accept = self._tls.over(accept)
        self._listening = await asyncio.get_running_loop().create_server(
            accept, host or None, port, reuse_address=True
        )
        bound_port: int = self._listening.sockets[0].getsockname()[1]
        scheme = "http" if self._tls is None else "https"
        shown = host or "0.0.0.0"  # noqa: S104
        _log.info("metrics, health and compaction on %s://%s:%d", scheme, shown, bound_port)
        return bound_port

    async def close(self) -> None:
        """Stop listening, and close the connections."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._tls is not None:
            self._tls.stop()
        if self._connections is not None:
            self._connections.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request: check it with the guard, time its connection, log our own failures."""
        assert self._connections is not None
        self._connections.begin(request)
        try:
            refusal = self._guard(request)
            if refusal is not None:
                return web.json_response({"error": refusal}, status=403)
            if request.headers.get("Expect", CONTINUE).lower() != CONTINUE:
                return web.json_response({"error": f"Expect is {CONTINUE} or none"}, status=417)
            return await self._answer_by_route(request)
        except (web.HTTPException, ConnectionError):
            raise
        except (aiohttp.ClientPayloadError, web.RequestPayloadError) as error:
            text = f"the body cannot be read: {error}"
            return web.json_response({"error": text}, status=400)
        except Exception:  # noqa: BLE001 - the one place that answers for them all
            _log.exception("%s %s failed", request.method, request.path)
            return web.json_response({"error": "the broker failed; its log says why"}, status=500)
        finally:
            self._connections.end(request)

    def _own_routes(self) -> Iterable[web.RouteDef]:
        return (
            web.get("/", self._index),
            web.get("/metrics", self._metrics),
            web.get("/health/live", self._live),
            web.get("/health/ready", self._ready),
            web.get("/v1/status/ready", self._ready),
        )

    def _checked(self, route: web.RouteDef) -> web.RouteDef:
        """Returns a route whose handler runs only if the request is allowed.

        Not by a middleware: aiohttp keeps the handlers of these in a cache of the process, and with them
        the broker, after its stop.
        """
        access = self._access
        if access is None:
            return route

        async def answer(request: web.Request) -> web.StreamResponse:
            return await access(request, route.handler)

        return web.RouteDef(route.method, route.path, answer, route.kwargs)

    async def _index(self, request: web.Request) -> web.Response:
        lines = (
            f"{route.method:<7} {route.resource.canonical}\n"
            for route in request.app.router.routes()
            if route.resource is not None and route.method != "HEAD"
        )
        return web.Response(text="".join(lines))

    async def _metrics(self, request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        if accepts_gzip(request.headers.get("Accept-Encoding")):
            body = await self._run_in_thread(self._scraper.scrape_gzip)
            headers["Content-Encoding"] = "gzip"
        else:
            body = await self._run_in_thread(self._scraper.scrape)
        return web.Response(body=body, headers=headers)

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _ready(self, _: web.Request) -> web.Response:
        reason = self._not_ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=reason + "\n")
