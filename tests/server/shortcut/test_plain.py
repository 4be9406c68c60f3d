"""Where requests need more than a log, each takes the ordinary path, and is refused there."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.wire.error_codes import ErrorCode
from server.security.quotas.quota_entity import QuotaEntity
from tests.harness.authorized_broker import authorizing_broker
from tests.harness.fencing import INTERNAL, fence
from tests.harness.log_builder import batch_of
from tests.harness.plain_requests import Counts, counted
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
    serving_broker,
)


def produce() -> ProduceRequest:
    return produce_request("orders", batch_of([(b"k", b"v")]))


def fetch() -> FetchRequest:
    return fetch_request([("orders", 0, 0)])


async def asked(client: RawClient) -> tuple[int, int]:
    """Send a plain produce and a plain fetch. Returns their error codes."""
    produced = await client.call(produce(), 9, ProduceResponse)
    fetched = await client.call(fetch(), 12, FetchResponse)
    return only_produced(produced).error_code, only_fetched(fetched).error_code


async def with_a_topic(served: ServedBroker) -> None:
    await served.create("orders")
    await served.broker.topics.make_files(served.log("orders"))


async def test_without_rules_both_take_the_second_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with serving_broker(tmp_path) as served:
        await with_a_topic(served)
        assert await asked(await served.connect()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert counts == Counts(taken=2, left=0)


async def test_an_authorizer_refuses_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    async with authorizing_broker(tmp_path) as served:
        await with_a_topic(served)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await asked(await served.connect()) == (refused, refused)
        assert served.log("orders").log_end_offset == 0
    assert counts == Counts(taken=0, left=2)


async def test_a_fence_refuses_the_produce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await with_a_topic(served)
        await served.produce("orders", batch_of([(b"k", b"v")]))
        await fence(served)
        counts = counted(monkeypatch)
        codes = await asked(await served.connect("INTERNAL"))
        assert codes == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)
        assert served.log("orders").log_end_offset == 1
        assert counts == Counts(taken=0, left=2)


async def test_a_quota_counts_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    async with serving_broker(tmp_path) as served:
        await with_a_topic(served)
        quotas = served.broker.quotas
        everyone = QuotaEntity.of([("user", None)])
        quotas.set(everyone, "request_percentage", 1000.0)
        assert await asked(await served.connect()) == (ErrorCode.NONE, ErrorCode.NONE)
        assert counts == Counts(taken=0, left=2)
        quotas.set(everyone, "request_percentage", None)
        assert await asked(await served.connect()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert counts == Counts(taken=2, left=2)
