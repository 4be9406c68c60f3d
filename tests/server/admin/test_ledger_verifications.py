"""Verifications of the ledgers beside other work, and at the end of the broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from server.admin.ledger_verifications import LedgerJob, LedgerVerifications, _Stopped
from server.admin.refusals import CompactionRefused
from tests.harness.steered_broker import steered_broker


async def test_a_long_verification_holds_up_neither_a_search_nor_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def verify(_: LedgerVerifications, job: LedgerJob) -> None:
        begun.set()
        job.stop.wait()
        raise _Stopped

    monkeypatch.setattr(LedgerVerifications, "_verify", verify)
    async with asyncio.timeout(60), steered_broker(tmp_path) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        verification = await broker.post("/ledger/verify")
        await asyncio.to_thread(begun.wait)
        job = await broker.finished(await broker.post("/topics/orders/find-key?key=a2V5"))
        assert job["partitions"][0]["state"] == "done"
        assert not (await broker.get(f"/ledger/verify/{verification['id']}"))["is_over"]


async def test_none_begins_once_the_broker_stops(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        compaction = broker.served.broker.compaction
        assert compaction is not None
        await compaction.ledger_verifications.stop()

        with pytest.raises(CompactionRefused, match="stopping"):
            compaction.ledger_verifications.begin()
