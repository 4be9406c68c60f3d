"""A broker in the test's own loop whose cleaner is controlled over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.harness.served_broker import ServedBroker, batch_of, serving_broker

Json = dict[str, Any]

PATIENCE_SECONDS = 300.0
LAZY = {"log_cleaner_backoff_ms": "3600000"}
"""Properties of a cleaner that only looks for work when it is woken."""


class SteeredBroker:
    """The broker, with requests to its HTTP listener."""

    def __init__(self, served: ServedBroker, session: aiohttp.ClientSession) -> None:
        self.served = served
        self._session = session
        self.url = f"http://127.0.0.1:{served.broker.http_port}"

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Json]:
        """Returns status and JSON of an answer; `path` is relative to /v1/compaction."""
        url = f"{self.url}/v1/compaction{path}"
        async with self._session.request(method, url, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str = "") -> Json:
        """Returns the answer to a GET, which must succeed."""
        status, answer = await self.ask("GET", path)
        assert status == 200, answer
        return answer

    async def post(self, path: str) -> Json:
        """Returns the answer to a POST, which must succeed."""
        status, answer = await self.ask("POST", path)
        assert status in (200, 202), answer
        return answer

    async def finished(self, job: Json) -> Json:
        """Wait until a job is over. Returns its final state."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not job["is_over"]:
                await asyncio.sleep(0.01)
                job = await self.get(f"/jobs/{job['id']}")
        return job

    async def produce_dirty(self, topic: str, count: int = 3) -> None:
        """Produce `count` records of one key, one per batch."""
        for number in range(count):
            await self.served.produce(topic, batch_of(1, value=b"%d" % number))


@asynccontextmanager
async def steered_broker(directory: Path, **properties: str) -> AsyncIterator[SteeredBroker]:
    """Run a broker whose cleaner only looks for work when woken, unless `properties` differ."""
    chosen = {"http_listener": "127.0.0.1:0", "log_cleaner_enable": "true", **LAZY, **properties}
    async with serving_broker(directory, **chosen) as served, aiohttp.ClientSession() as session:
        yield SteeredBroker(served, session)
