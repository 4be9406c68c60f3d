"""The HTTP endpoint: `/metrics` for Prometheus, `/health/...` for supervisors, and what it is given.

GET /                    200, what is served here, a line each
GET /metrics             200, Prometheus' text
GET /health/live         200 while the process answers at all
GET /health/ready        200 while the broker serves, else 503 with the reason
GET /v1/status/ready     the same, where Redpanda has it
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from aiohttp import web

from metrics.collector import Scraper

_log = logging.getLogger("metrics.http_endpoint")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SHUTDOWN_SECONDS = 1.0


class HttpEndpoint:
    """Serves metrics and health on one address. Lives on the loop; scrapes run in a thread."""

    def __init__(
        self,
        scraper: Scraper,
        *,
        not_ready: Callable[[], str | None],
        routes: Iterable[web.RouteDef] = (),
    ) -> None:
        """
        Args:
            not_ready: says why the broker does not serve, None while it does.
            routes: what else is served here.
        """
        self._scraper = scraper
        self._routes = tuple(routes)
        self._not_ready = not_ready
        self._runner: web.AppRunner | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; the port, which the system chose if `port` is 0.

        Raises:
            OSError: the address is in use or not ours.
        """
        app = web.Application()
        app.router.add_get("/", self._index)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/v1/status/ready", self._ready)
        app.add_routes(self._routes)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host or None, port)
        await site.start()
        bound_port: int = self._runner.addresses[0][1]
        _log.info("metrics, health and compaction on http://%s:%d", host or "0.0.0.0", bound_port)  # noqa: S104
        return bound_port

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _index(self, request: web.Request) -> web.Response:
        lines = (
            f"{route.method:<7} {route.resource.canonical}\n"
            for route in request.app.router.routes()
            if route.resource is not None and route.method != "HEAD"
        )
        return web.Response(text="".join(lines))

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._scraper.scrape)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _ready(self, _: web.Request) -> web.Response:
        reason = self._not_ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=reason + "\n")
