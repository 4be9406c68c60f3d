"""What `kompakt replica verify` prints, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.base.command_end import CommandFailed
from cli.replica import verify
from cli.replica.verify import verify_link

DIFFERENCE = {
    "kind": "other_content",
    "key": "b",
    "key_hex": "62",
    "source_offset": 1,
    "mirror_offset": None,
}


def job_of(verdict: str, *, is_over: bool = True) -> dict[str, Any]:
    side = {"count": 3, "digest": "0" * 32, "read_bytes": 10}
    part = {
        "topic": "t",
        "partition": 0,
        "state": "done",
        "phase": "done",
        "verdict": verdict,
        "reason": "" if verdict == "equal" else "a sentence",
        "compares": "last values",
        "end_offset": 7,
        "rewritten": 2,
        "source": side,
        "mirror": side,
        "differences": {"listed": [DIFFERENCE]} if verdict == "different" else None,
    }
    return {
        "id": 5,
        "topic": "t",
        "source": "127.0.0.1:1",
        "cost_bytes": 2_000_000,
        "is_over": is_over,
        "verdict": verdict if is_over else None,
        "partitions": [part],
    }


class Client:
    """Answers as a broker whose comparison ends with a verdict."""

    def __init__(self, verdict: str, topics: tuple[str, ...] = ("t",)) -> None:
        self.verdict, self.topics = verdict, topics
        self.calls: list[tuple[str, str]] = []

    async def call(self, method: str, path: str, query: object = None) -> dict[str, Any]:
        self.calls.append((method, path))
        if path == "/links/dr":
            return {"name": "dr", "partitions": [{"topic": each} for each in self.topics]}
        return job_of(self.verdict, is_over=method == "GET")


def run(monkeypatch: pytest.MonkeyPatch, client: Client, topic: str | None = None) -> int:
    @asynccontextmanager
    async def connected(url: str, *, root: str) -> AsyncIterator[Client]:
        yield client

    monkeypatch.setattr(verify, "connected", connected)
    monkeypatch.setattr(verify, "POLL_SECONDS", 0.0)
    return asyncio.run(verify_link("http://b", "dr", topic, wait_seconds=1, as_json=False))


@pytest.mark.parametrize(("verdict", "code"), [("equal", 0), ("different", 1), ("unknown", 1)])
def test_the_exit_code_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    assert run(monkeypatch, Client(verdict)) == code


def test_the_cost_is_said_first_and_a_difference_has_its_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client("different")
    run(monkeypatch, client, "t")

    shown = capsys.readouterr()
    assert "t: reads 2.0 MB at the source 127.0.0.1:1" in shown.err
    assert "a sentence" in shown.out
    assert "'b'" in shown.out
    assert "other content" in shown.out
    assert "2 keys written again" in shown.out
    assert client.calls[1] == ("POST", "/mirrors/t/verify")


def test_a_topic_that_the_link_does_not_mirror_is_an_error_that_names_those_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CommandFailed, match="typo is no mirror of link dr; its mirrors: t"):
        run(monkeypatch, Client("equal"), "typo")
    with pytest.raises(CommandFailed, match="kompakt replica status dr says why"):
        run(monkeypatch, Client("equal", ()))
