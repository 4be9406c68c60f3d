"""`kompakt replica failover` promotes every mirror of a link, and lists what each lacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.replica import change


class Client:
    """A broker with one link, whose mirrors have partitions as given."""

    def __init__(self, topics: dict[str, int], missing: dict[str, list[str]]) -> None:
        self.partitions = [
            {"topic": topic, "partition": number}
            for topic, count in topics.items()
            for number in range(count)
        ]
        self.missing = missing
        self.promoted: list[tuple[str, Any]] = []

    async def call(self, method: str, path: str, query: Any = None) -> dict[str, Any]:
        if method == "GET":
            assert path == "/links/dr"
            return {"partitions": self.partitions}
        topic = path.removeprefix("/mirrors/").removesuffix("/promote")
        self.promoted.append((topic, query))
        return {"missing": self.missing.get(topic, [])}


def fail_over(monkeypatch: pytest.MonkeyPatch, client: Client, *, as_json: bool = False) -> int:
    @asynccontextmanager
    async def connected(url: str, *, root: str) -> AsyncIterator[Client]:
        yield client

    monkeypatch.setattr(change, "connected", connected)
    return asyncio.run(change.fail_over("http://broker", "dr", as_json=as_json))


def test_each_mirror_is_promoted_by_force_and_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client({"b": 2, "a": 1}, {"b": ["b-1: 7 offsets behind"]})
    assert fail_over(monkeypatch, client) == 0
    assert client.promoted == [("a", {"force": "true"}), ("b", {"force": "true"})]
    assert capsys.readouterr().out == (
        "a is an ordinary topic now\nb is an ordinary topic now; it lacks:\n  b-1: 7 offsets behind\n"
    )


def test_as_json_it_has_an_entry_for_each_topic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail_over(monkeypatch, Client({"a": 1}, {}), as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"topics": {"a": {"missing": []}}}


def test_a_link_without_mirrors_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail_over(monkeypatch, Client({}, {})) == 0
    assert capsys.readouterr().out == "link dr has no mirrors\n"
