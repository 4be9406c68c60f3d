"""Leases as their holder sees them, without Spark; a broker of a few lines answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from protocol.wire.numbers import Offset

pytest.importorskip("pyspark")

from cleaner.remote.plan import RemotePlan, RemoteResult
from cli.compact.client import CallFailed, CompactionClient
from pipeline.cleaning.leases import HeldLeases
from tests.harness.compacted_log import CompactedLog
from tests.harness.remote_cleaning import plan_for_others


def plan() -> RemotePlan:
    log = CompactedLog()
    log.append_segment((b"k", b"v"))
    return plan_for_others(log.fs, log.plan())


class Broker(CompactionClient):
    """Leases one log for a very short time; what it refuses is said by the test."""

    def __init__(self) -> None:
        self.refused: dict[str, CallFailed] = {}
        self.plan = json.loads(plan().to_json())
        self.asked: list[str] = []
        self.renewed = asyncio.Event()
        self.refused_twice = asyncio.Event()

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: str | None = None,
    ) -> dict[str, Any]:
        await asyncio.sleep(0)
        action = path.rpartition("/")[2] if method == "POST" else method
        self.asked.append(action)
        if action in self.refused:
            if self.asked.count(action) > 1:
                self.refused_twice.set()
            raise self.refused[action]
        if action == "renew":
            self.renewed.set()
        return {
            "lease": {"lease": self.plan["lease"], "plan": self.plan, "seconds": 0.003},
            "commit": {
                "is_over": True,
                "partitions": [{"error": None, "report": {"groups": 0}}],
            },
        }.get(action, {})


async def test_a_lease_is_renewed_as_long_as_it_is_held_and_given_up_at_the_end() -> None:
    broker = Broker()
    async with HeldLeases(broker) as leases:
        await leases.take("orders", 0)
        await broker.renewed.wait()

    assert broker.asked[0] == "lease"
    assert broker.asked[-1] == "DELETE"
    asked = len(broker.asked)
    await asyncio.sleep(0.01)
    assert len(broker.asked) == asked, "no lease is renewed"


async def test_a_lease_that_the_broker_does_not_know_any_more_is_lost_with_its_words() -> None:
    broker = Broker()
    broker.refused["renew"] = CallFailed(1, "lease 7 has ended: the log has changed", status=409)
    async with HeldLeases(broker) as leases:
        lease = await leases.take("orders", 0)
        await leases.all_lost.wait()

        with pytest.raises(CallFailed, match="the log has changed"):
            await leases.commit(
                lease, RemoteResult(lease="0" * 32, end_offset=Offset(0), groups=())
            )
    assert "DELETE" not in broker.asked


async def test_a_broker_that_is_away_for_a_moment_loses_no_lease() -> None:
    broker = Broker()
    broker.refused["renew"] = CallFailed(3, "no broker answers")
    async with HeldLeases(broker) as leases:
        lease = await leases.take("orders", 0)
        await broker.refused_twice.wait()
        del broker.refused["renew"]
        await broker.renewed.wait()

        assert lease.lost is None


async def test_a_plan_of_another_release_is_refused_and_its_lease_given_up() -> None:
    broker = Broker()
    broker.plan["format"] = 99
    async with HeldLeases(broker) as leases:
        with pytest.raises(CallFailed, match="has format 99, this release reads format 4; use the"):
            await leases.take("orders", 0)
        assert broker.asked == ["lease", "DELETE"]


async def test_a_committed_lease_is_not_given_up() -> None:
    broker = Broker()
    async with HeldLeases(broker) as leases:
        lease = await leases.take("orders", 0)
        result = RemoteResult(lease=lease.plan.lease, end_offset=Offset(0), groups=())

        assert await leases.commit(lease, result) == {"groups": 0}
    assert "DELETE" not in broker.asked
