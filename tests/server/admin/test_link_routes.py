"""The HTTP route of a resync: what it passes on, and how refusals look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from server.admin.link_routes import LinkRoutes
from server.replication.replication import LinkRefused, UnknownLink
from server.runtime.sliced_json import Json, Rows
from storage.formats.topic_partition import TopicPartition


class Links:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, int | None, bool]] = []
        self.refusal: LinkRefused | None = None

    def shown(self) -> list[Json]:
        return [self.shown_one("dr"), self.shown_one("other")]

    def shown_one(self, name: str) -> Json:
        return {"name": name, "partitions": Rows(lambda each: {"partition": each}, range(1000))}

    async def shown_whole(self, name: str) -> Json:
        return self.shown_one(name)

    async def pause(self, name: str, *, is_paused: bool) -> None:
        """Nothing to pause."""

    async def resync(
        self, name: str, topic: str | None, partition: int | None, *, puts_aside: bool
    ) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
        self.asked.append((name, topic, partition, puts_aside))
        if self.refusal is not None:
            raise self.refusal
        return [TopicPartition("t", 0)], {TopicPartition("t", 1): "its disk failed"}


@pytest.fixture
def links() -> Links:
    return Links()


@pytest.fixture
async def http(links: Links) -> AsyncIterator[TestClient[Any, Any]]:
    given: Any = links
    application = web.Application()
    application.router.add_routes(LinkRoutes(lambda: given).routes())
    async with TestClient(TestServer(application)) as client:
        yield client


async def test_links_are_shown_with_all_partitions(http: TestClient[Any, Any]) -> None:
    partitions = [{"partition": number} for number in range(1000)]
    async with http.get("/v1/links") as response:
        assert response.content_type == "application/json"
        assert await response.json() == {
            "links": [{"name": name, "partitions": partitions} for name in ("dr", "other")]
        }
    for answer in (http.get("/v1/links/dr"), http.post("/v1/links/dr/pause")):
        async with answer as response:
            assert await response.json() == {"name": "dr", "partitions": partitions}


async def test_a_resync_is_asked_for_by_query(http: TestClient[Any, Any], links: Links) -> None:
    async with http.post("/v1/links/dr/resync?topic=t&partition=3&put_aside=true") as response:
        assert response.status == 200
        assert await response.json() == {
            "started": [{"topic": "t", "partition": 0}],
            "refused": [{"topic": "t", "partition": 1, "reason": "its disk failed"}],
        }
    async with http.post("/v1/links/dr/resync"):
        pass
    assert links.asked == [("dr", "t", 3, True), ("dr", None, None, False)]


@pytest.mark.parametrize(
    "query", ["partition=1", "topic=t&partition=x", "topic=t&partition=-1", "topic=t&partition=²"]
)
async def test_a_partition_is_a_number_of_a_topic(
    http: TestClient[Any, Any], links: Links, query: str
) -> None:
    async with http.post(f"/v1/links/dr/resync?{query}") as response:
        assert response.status == 400
    assert links.asked == []


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(UnknownLink("there is none"), 404), (LinkRefused("none has failed", ["t-0: why"]), 409)],
)
async def test_a_refusal_says_why(
    http: TestClient[Any, Any], links: Links, refusal: LinkRefused, status: int
) -> None:
    links.refusal = refusal
    async with http.post("/v1/links/dr/resync") as response:
        assert response.status == status
        assert await response.json() == {"error": str(refusal), "missing": refusal.missing}
