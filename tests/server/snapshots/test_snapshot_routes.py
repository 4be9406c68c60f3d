"""Snapshots over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from storage.snapshots.descriptor import decode
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker


@dataclass
class Http:
    """The HTTP listener of a broker with two topics."""

    served: ServedBroker
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str = "", body: str = "") -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.served.broker.http_port}/v1/snapshots{path}"
        headers = {"Content-Type": "application/json"} if body else {}
        async with self.session.request(method, url, data=body, headers=headers) as response:
            return response.status, await response.json()

    async def metrics(self) -> dict[str, float]:
        url = f"http://127.0.0.1:{self.served.broker.http_port}/metrics"
        async with self.session.get(url) as response:
            lines = (await response.text()).splitlines()
        found = (line.rsplit(" ", 1) for line in lines if line.startswith("kompakt_snapshot"))
        return {name: float(value) for name, value in found}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with (
        serving_broker(tmp_path, http_listener="127.0.0.1:0") as served,
        aiohttp.ClientSession() as session,
    ):
        await served.create("orders", 2)
        await served.create("users")
        await served.produce("orders", batch_of(3), partition=1)
        yield Http(served, session)


def check_descriptor(path: Path, snapshot_id: str) -> None:
    assert decode(path.read_bytes(), str(path)).id == snapshot_id
    assert path.stat().st_mode & 0o777 == 0o600


async def test_snapshot_is_made_shown_listed_and_dropped(http: Http) -> None:
    status, made = await http.ask("POST")
    assert status == 201
    assert made["is_complete"]
    assert {"orders", "users"} <= set(made["topics"])
    assert made["bytes"] == http.served.log("orders", 1).size_bytes
    check_descriptor(Path(made["path"]), made["id"])

    _, listed = await http.ask("GET")
    assert listed["snapshots"] == [made]
    assert listed["pinned_bytes"] == made["pinned_bytes"] > 0

    _, shown = await http.ask("GET", f"/{made['id']}")
    partitions = shown.pop("partitions")
    assert shown == made
    assert len(partitions) == made["partitions_count"]
    assert {
        "topic": "orders",
        "partition": 1,
        "start_offset": 0,
        "end_offset": 3,
        "bytes": made["bytes"],
    } in partitions

    assert await http.ask("DELETE", f"/{made['id']}") == (200, {})
    assert await http.ask("GET") == (200, {"pinned_bytes": 0, "snapshots": []})


async def test_snapshot_of_some_topics(http: Http) -> None:
    status, made = await http.ask("POST", body=json.dumps({"topics": ["users"]}))
    assert status == 201
    assert [name for name in made["topics"] if not name.startswith("__")] == ["users"]
    for everything in ('{"topics": null}', "{}"):
        status, made = await http.ask("POST", body=everything)
        assert (status, "orders" in made["topics"]) == (201, True)


async def test_snapshot_of_an_earlier_time(http: Http) -> None:
    status, made = await http.ask("POST", body=json.dumps({"topics": ["orders"], "at_ms": 1000}))
    assert (status, made["topics"], made["at_ms"], made["bytes"]) == (201, ["orders"], 1000, 0)
    assert (await http.ask("GET"))[1]["snapshots"] == [made]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("{", "send a JSON object, or nothing"),
        ("[]", "send a JSON object, or nothing"),
        ('"orders"', "send a JSON object, or nothing"),
        ('{"topics": "orders"}', "topics is a list of names; leave it out for all topics"),
        ('{"topics": [1]}', "topics is a list of names; leave it out for all topics"),
        ('{"topics": []}', "topics has no name; leave it out for all topics"),
        ('{"at_ms": "now"}', "at_ms is a time in ms since 1970; leave it out for now"),
        ('{"at_ms": true}', "at_ms is a time in ms since 1970; leave it out for now"),
        ('{"at_ms": -1}', "at_ms is a time in ms since 1970; leave it out for now"),
        ('{"at_ms": 253402300800000}', "at_ms is a time in ms since 1970; leave it out for now"),
        ('{"at_ms": 253402300799999}', "the time lies in the future"),
    ],
)
async def test_body_that_makes_no_sense_is_refused(http: Http, body: str, error: str) -> None:
    status, answer = await http.ask("POST", body=body)
    assert (status, answer["error"]) == (400, error)
    assert (await http.ask("GET"))[1]["snapshots"] == []


async def test_unknown_topic_and_unknown_snapshot_are_not_found(http: Http) -> None:
    status, answer = await http.ask("POST", body='{"topics": ["missing"]}')
    assert (status, answer["error"]) == (404, "there is no topic missing")
    for method in ("GET", "DELETE"):
        status, answer = await http.ask(method, "/missing")
        assert (status, answer["error"]) == (404, "there is no snapshot missing")
    # Not the directory of something else.
    status, _ = await http.ask("DELETE", "/..%2Forders")
    assert status == 404


async def test_second_snapshot_at_a_time_is_refused(http: Http) -> None:
    answers = await asyncio.gather(http.ask("POST"), http.ask("POST"))
    assert sorted(status for status, _ in answers) == [201, 409]
    (refused,) = [answer for status, answer in answers if status == 409]
    assert refused["error"] == "another snapshot is being made: ask again when it is done"


async def test_snapshot_that_is_not_complete_is_listed_with_the_reason(http: Http) -> None:
    _, made = await http.ask("POST")
    await asyncio.to_thread(Path(made["path"]).unlink)
    _, listed = await http.ask("GET")
    assert listed["snapshots"] == [
        {
            "id": made["id"],
            "is_complete": False,
            "reason": "it was not completed",
            "pinned_bytes": made["pinned_bytes"],
        }
    ]
    assert (await http.ask("GET", f"/{made['id']}"))[1] == listed["snapshots"][0]
    assert await http.ask("DELETE", f"/{made['id']}") == (200, {})


async def test_metrics_have_what_was_counted_last(http: Http) -> None:
    _, made = await http.ask("POST")
    assert await http.metrics() == {
        "kompakt_snapshots": 1,
        "kompakt_snapshot_bytes": made["bytes"],
        "kompakt_snapshot_pinned_bytes": made["pinned_bytes"],
    }
