"""What `kompakt replica resync` asks for and prints, and what `status` shows of a resync."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.base.command_end import CommandFailed
from cli.compact.client import CallFailed
from cli.replica import change, show

T0 = {"topic": "t", "partition": 0}
PARTITION = {
    **T0,
    "state": "resync",
    "since_ms": 0,
    "reason": "",
    "end": 5_000,
    "source_end": 7_000,
    "lag": 2_000,
    "resync": {
        "started_ms": 0,
        "cause": "a guard",
        "copied": 1_200,
        "goal": 5_000,
        "remaining_ms": 17_000,
    },
    "put_aside": [{"directory": "/data/t/0.aside.70", "size_bytes": 2_000_000}],
}


class Client:
    """Answers as a broker does."""

    def __init__(self, answer: dict[str, Any], refused: CallFailed | None = None) -> None:
        self.answer, self.refused = answer, refused
        self.asked: list[tuple[str, str, Any]] = []

    async def call(self, method: str, path: str, query: Any = None) -> dict[str, Any]:
        self.asked.append((method, path, query))
        if self.refused is not None:
            raise self.refused
        return self.answer


def connect(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    @asynccontextmanager
    async def connected(url: str, *, root: str) -> AsyncIterator[Client]:
        yield client

    monkeypatch.setattr(change, "connected", connected)
    monkeypatch.setattr(show, "connected", connected)


def resync(topic: str | None = "t", partition: int | None = 0, *, puts_aside: bool = False) -> int:
    asked = change.resync_link(
        "http://b", "dr", topic, partition, puts_aside=puts_aside, as_json=False
    )
    return asyncio.run(asked)


def test_a_partition_is_named_and_the_old_log_kept_if_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client({"started": [T0], "refused": []})
    connect(monkeypatch, client)
    assert resync(puts_aside=True) == 0
    query = {"put_aside": "true", "topic": "t", "partition": "0"}
    assert client.asked == [("POST", "/links/dr/resync", query)]
    assert "copying t-0 once more\n" in capsys.readouterr().out


def test_a_partition_that_cannot_be_copied_once_more_makes_the_command_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {**T0, "partition": 1, "reason": "its disk failed"}
    connect(monkeypatch, Client({"started": [T0], "refused": [refused]}))
    assert resync(None, None) == 1
    assert "t-1 is not copied once more: its disk failed\n" in capsys.readouterr().out


def test_a_refusal_of_several_partitions_lists_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"missing": ["t-0: a reason", "t-1: another one"]}
    refused = CallFailed(1, "no failed partition can be copied once more", answer=answer)
    connect(monkeypatch, Client({}, refused))
    with pytest.raises(CommandFailed, match="no failed partition"):
        resync(None, None)
    assert "t-1: another one" in capsys.readouterr().err


def test_status_shows_no_lag_where_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [
        {
            **PARTITION,
            "partition": number,
            "state": state,
            "lag": 7,
            "resync": None,
            "put_aside": [],
        }
        for number, state in enumerate(("copying", "retrying", "failed"))
    ]
    link = {"name": "dr", "bootstrap": "a:1", "reason": "", "problems": {}, "partitions": parts}
    connect(monkeypatch, Client(link))
    monkeypatch.setenv("COLUMNS", "250")

    asyncio.run(show.show_link("http://b", "dr", as_json=False))

    shown = capsys.readouterr().out
    assert "7 offsets behind; the lag of 2 partitions is unknown, see STATE;" in shown
    lags = {
        line.split()[0]: line.split()[-1] for line in shown.splitlines() if line.startswith("t-")
    }
    assert lags == {"t-0": "7", "t-1": "-", "t-2": "-"}


def test_status_shows_progress_and_what_is_put_aside(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    link = {"name": "dr", "bootstrap": "a:1", "reason": "", "problems": {}}
    connect(monkeypatch, Client({**link, "partitions": [PARTITION]}))
    monkeypatch.setenv("COLUMNS", "250")
    assert asyncio.run(show.show_link("http://b", "dr", as_json=False)) == 1
    shown = capsys.readouterr().out
    assert "new copy: 1,200 of 5,000 offsets, about 17.0 s left" in shown
    assert "put aside in /data/t/0.aside.70 (2.0 MB); removing it frees that space" in shown


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([], 1),
        (["copying"], 0),
        (["copying", "copying"], 0),
        (["copying", "checking"], 1),
        (["failed"], 1),
    ],
    ids=str,
)
def test_status_ends_with_0_only_if_there_are_partitions_and_all_are_copied(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    states: list[str],
    code: int,
    as_json: bool,
) -> None:
    """A script that waits for a link would otherwise continue before its first mirror is made."""
    partitions = [{**PARTITION, "state": state, "resync": None} for state in states]
    link = {"name": "dr", "bootstrap": "a:1", "reason": "", "problems": {}}
    connect(monkeypatch, Client({**link, "partitions": partitions}))
    assert asyncio.run(show.show_link("http://b", "dr", as_json=as_json)) == code
    if not states and not as_json:
        assert "no partition is mirrored" in capsys.readouterr().out
