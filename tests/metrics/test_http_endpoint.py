"""The HTTP endpoint over a real socket."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest

from metrics.cleaner_probe import CleanerCounts
from metrics.collector import BrokerCollector, Scraper
from metrics.facts import BrokerFacts
from metrics.http_endpoint import HttpEndpoint
from metrics.server_probe import ServerProbe
from storage.recovery.progress import RecoveryProgress


class Served:
    """An endpoint on a free port; `reason` is why it is not ready, `refusal` why it answers nobody."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.refusal: str | None = None
        facts = BrokerFacts(
            version="1",
            is_ready=True,
            partitions_by_topic={},
            partitions_offline=0,
            log_directories=(),
            directories_offline=0,
            recovery=RecoveryProgress(),
        )
        collector = BrokerCollector(
            ServerProbe(),
            CleanerCounts(),
            broker=lambda: facts,
            partitions=list,
            partitions_listed_max=1,
        )
        self.endpoint = HttpEndpoint(
            Scraper(collector),
            not_ready=lambda: self.reason,
            run_in_thread=asyncio.to_thread,
            guard=lambda _: self.refusal,
        )
        self.port = 0

    async def get(self, path: str) -> tuple[int, str, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, response.headers["Content-Type"], await response.text()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    served.port = await served.endpoint.open("127.0.0.1", 0)
    yield served
    await served.endpoint.close()


async def test_metrics_are_in_prometheus_text(served: Served) -> None:
    status, content_type, text = await served.get("/metrics")

    assert status == 200
    assert content_type.startswith("text/plain; version=0.0.4")
    assert 'kompakt_build_info{version="1"} 1.0' in text
    assert "process_open_fds" in text


async def test_readiness_follows_the_broker_and_says_why(served: Served) -> None:
    assert (await served.get("/health/ready"))[0] == 200

    served.reason = "recovering logs"

    status, _, text = await served.get("/health/ready")
    assert status == 503
    assert text == "recovering logs\n"
    assert (await served.get("/v1/status/ready"))[0] == 503
    assert (await served.get("/health/live"))[0] == 200


async def test_other_paths_are_not_found(served: Served) -> None:
    assert (await served.get("/nothing"))[0] == 404


async def test_the_root_lists_what_is_served(served: Served) -> None:
    status, _, text = await served.get("/")

    assert status == 200
    assert "GET     /metrics\n" in text
    assert "HEAD" not in text


async def test_metrics_are_compressed_for_a_client_that_accepts_it(served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}/metrics"
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        async with session.get(url, headers={"Accept-Encoding": "gzip"}) as response:
            packed, headers = await response.read(), response.headers
        async with session.get(url, headers={"Accept-Encoding": "identity"}) as response:
            plain, plain_headers = await response.read(), response.headers

    assert headers["Content-Encoding"] == "gzip"
    assert headers["Vary"] == plain_headers["Vary"] == "Accept-Encoding"
    assert "Content-Encoding" not in plain_headers
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain)


@pytest.mark.parametrize("path", ["/", "/metrics", "/health/live", "/health/ready", "/nothing"])
async def test_who_is_refused_gets_no_answer_at_any_path(served: Served, path: str) -> None:
    served.refusal = "you are a page"

    status, _, text = await served.get(path)

    assert (status, text) == (403, '{"error": "you are a page"}')


async def test_a_mistake_of_ours_is_logged_and_told_without_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = Served()

    def fail() -> str:
        raise ZeroDivisionError

    served.endpoint._not_ready = fail
    served.port = await served.endpoint.open("127.0.0.1", 0)
    status, _, text = await served.get("/health/ready")
    await served.endpoint.close()

    assert (status, text) == (500, '{"error": "the broker failed; its log says why"}')
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.getMessage() == "GET /health/ready failed"


async def test_bytes_that_are_no_request_are_answered_and_fill_no_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"\x16\x03\x01 no request\r\n\r\n")

    answer = await reader.read()

    writer.close()
    assert answer.startswith(b"HTTP/1.0 400")
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
