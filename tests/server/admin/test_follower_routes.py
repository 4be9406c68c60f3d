"""The HTTP route that lists the standbys of a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from server.admin.http_rules import FOLLOWERS
from tests.harness.served_broker import serving_broker


async def asked(port: int | None) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{FOLLOWERS}") as response,
    ):
        return response.status, await response.json()


async def test_the_leader_says_where_its_log_ends_and_who_follows(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, http_listener="127.0.0.1:0") as served:
        broker = served.broker
        await served.create("orders")
        broker.followers.seen("standby-1", "10.0.0.7", 1)
        status, found = await asked(broker.http_port)
        assert status == 200
        digest, end = broker.metadata_log.digest
        assert (found["end"], found["digest"]) == (end, f"{digest:032x}")
        assert found["cluster_id"] == broker.node.cluster_id
        (follower,) = found["followers"]
        assert (follower["id"], follower["host"], follower["lag"]) == (
            "standby-1", "10.0.0.7", end - 1,
        )  # fmt: skip
