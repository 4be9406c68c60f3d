"""The lag of a group in records: what the broker answers, and the line about its progress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import cli.groups.record_lag
from cli.groups.record_lag import PartLag, RecordLag, progress_text, record_lag_of


def lag_of(*parts: tuple[int, int], is_exact: bool = True) -> RecordLag:
    counted = {
        ("orders", number): PartLag(records=records, lag=lag, is_exact=is_exact)
        for number, (records, lag) in enumerate(parts)
    }
    return RecordLag(parts=counted, is_exact=is_exact)


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        (lag_of((1000, 0), (2000, 750)), "record lag 750 of 3,000 records: 75 % read"),
        (lag_of((1_000_000, 1)), "record lag 1 of 1,000,000 records: 99 % read"),
        (lag_of((1, 0)), "record lag 0 of 1 record: 100 % read"),
        (lag_of((0, 0)), "record lag 0 of 0 records: 100 % read"),
        (lag_of((8, 4), is_exact=False), "record lag ~4 of 8 records: 50 % read"),
    ],
    ids=["two_partitions", "nearly_all", "all", "none", "estimated"],
)
def test_progress_is_100_percent_only_if_no_record_is_left(lag: RecordLag, text: str) -> None:
    assert progress_text(lag, others=0) == text


def test_partitions_whose_position_is_not_known_are_named() -> None:
    text = progress_text(lag_of((5, 0)), others=2)
    assert text == (
        "record lag 0 of 5 records: 100 % read, without 2 partitions whose position is not known"
    )


def answering(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    """Let the HTTP listener at any URL give this answer."""

    class Client:
        async def call(self, method: str, path: str) -> dict[str, Any]:
            assert (method, path) == ("GET", "/v1/groups/a%2Fb/lag")
            return answer

    @asynccontextmanager
    async def connected(url: str, **_: object) -> AsyncIterator[Client]:
        yield Client()

    monkeypatch.setattr(cli.groups.record_lag, "connected", connected)


PART = {"topic": "orders", "partition": 0, "records": 5, "record_lag": 2, "is_exact": True}
LOST = {"topic": "orders", "partition": 1, "records": None, "record_lag": None, "is_exact": False}


async def test_partitions_that_were_not_counted_are_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{**PART, "error": None}, {**LOST, "error": "it is offline"}]
    answering(monkeypatch, {"cluster_id": "ours", "is_exact": False, "partitions": rows})

    lag = await record_lag_of("http://127.0.0.1:9644", "a/b", "ours")

    assert lag == RecordLag(
        parts={("orders", 0): PartLag(records=5, lag=2, is_exact=True)}, is_exact=False
    )


async def test_the_broker_of_another_cluster_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, {"cluster_id": "theirs", "is_exact": True, "partitions": []})

    lag = await record_lag_of("http://127.0.0.1:9644", "a/b", "ours")

    assert (lag.parts, lag.error) == (
        {},
        "not known: the broker at http://127.0.0.1:9644 is another cluster's; choose it with --url",
    )
