"""Opens the HTTP endpoint once the broker serves, or earlier if its recovery takes long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.runtime.tasks import awaited

if TYPE_CHECKING:
    from metrics.http_endpoint import HttpEndpoint
    from server.broker import Broker

PATIENCE_SECONDS = 1.0
"""If recovery takes longer, HTTP opens before it ends, so that supervisors see the broker alive."""


class HttpOpening:
    """The HTTP endpoint of one broker, open or not yet."""

    __slots__ = ("_broker", "_endpoint", "_opening", "port")

    def __init__(self, broker: Broker) -> None:
        # Constant after construction
        self._broker = broker
        # State
        self._endpoint: HttpEndpoint | None = None
        self._opening: asyncio.Task[None] | None = None
        self.port: int | None = None
        """None until it is open."""

    def begin(self) -> None:
        """Open it if `finish` is not called soon, unless the broker has no such listener."""
        if self._broker.config.resolved_http_listener() is not None:
            self._opening = awaited(self._open_if_slow())

    async def finish(self) -> None:
        """Open it now. Raises ListenError."""
        if self._opening is None:
            return
        if self._endpoint is None:
            self._opening.cancel()
            self._opening = awaited(self._open())
        await self._opening

    async def close(self) -> None:
        """Close it, or leave it closed."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._endpoint is not None:
            await self._endpoint.close()

    async def _open_if_slow(self) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        await self._broker.listening.wait_for_certificates()
        await self._open()

    async def _open(self) -> None:
        # Imported here, because its libraries take longer to import than a start, and in a thread,
        # because the other listeners serve clients already.
        http = await self._broker.import_in_thread("server.http")
        self._endpoint, self.port = await http.open_http(self._broker)
