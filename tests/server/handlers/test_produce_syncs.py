"""Produce and the disk: what waits for a sync, and when a log is synced where acks=all does not wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from storage.files.errors import SyncFailed
from storage.files.local_files import LocalFile
from tests.harness.served_broker import batch_of, only_produced, produce_request, serving_broker


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def sync_log(
    monkeypatch: pytest.MonkeyPatch, *, before: Callable[[], object] = lambda: None
) -> list[str]:
    """The segment files that are synced from here on, in order; `before` is called first."""
    synced: list[str] = []
    sound = LocalFile.sync

    def sync(file: LocalFile) -> None:
        before()
        sound(file)
        synced.append(file.path)

    monkeypatch.setattr(LocalFile, "sync", sync)
    monkeypatch.setattr(LocalFile, "sync_descriptor", lambda _: None)
    return synced


async def test_a_produce_that_waits_for_its_sync_holds_back_the_next_answer_but_not_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync = threading.Event()
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        log = served.log("orders")
        sync_log(monkeypatch, before=lambda: may_sync.wait(10))
        client = await served.connect()
        ids = [
            client.send(produce_request("orders", batch_of(1), acks=acks), 9)
            for acks in (-1, -1, 1, -1)
        ]

        first = asyncio.ensure_future(client.receive(ProduceResponse, 9, ids[0]))

        await until(lambda: log.log_end_offset == 4)
        await asyncio.sleep(0.05)

        assert log.high_watermark == 0
        assert not first.done(), "and none of the others may overtake it"
        may_sync.set()
        answers = [await first]
        answers += [await client.receive(ProduceResponse, 9, each) for each in ids[1:]]
        assert [only_produced(answer).base_offset for answer in answers] == [0, 1, 2, 3]


# Where acks=all does not wait for the disk.


async def test_without_flush_settings_nothing_is_synced_for_an_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path, flush_on_acks_all="false") as served:
        await served.create("orders")
        synced = sync_log(monkeypatch)
        for _ in range(20):
            await served.produce("orders")
        assert synced == []
        assert served.log("orders").high_watermark == 20


async def test_flush_messages_syncs_a_log_after_so_many_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path, flush_on_acks_all="false") as served:
        await served.create("orders", flush_messages="10")
        synced = sync_log(monkeypatch)
        await served.produce("orders", batch_of(9))
        await asyncio.sleep(0.05)
        assert synced == []

        await served.produce("orders")

        await until(lambda: len(synced) == 1)


async def test_flush_messages_1_syncs_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path, flush_on_acks_all="false") as served:
        await served.create("orders", flush_messages="1")
        synced = sync_log(monkeypatch)
        for number in range(1, 5):
            await served.produce("orders")
            assert len(synced) == number


async def test_flush_ms_syncs_an_idle_log_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals = {"log_flush_scheduler_interval_ms": "10"}
    async with serving_broker(tmp_path, flush_on_acks_all="false", **intervals) as served:
        await served.create("orders", flush_ms="20")
        await served.create("others")
        synced = sync_log(monkeypatch)
        await served.produce("others")
        await served.produce("orders")

        await until(lambda: len(synced) == 1)
        await asyncio.sleep(0.05)

        assert len(synced) == 1, "nothing was appended after that"
        assert "orders" in synced[0]


async def test_a_flush_that_fails_takes_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise SyncFailed("sync", str(tmp_path), 5, "Input/output error")

    async with serving_broker(tmp_path, flush_on_acks_all="false") as served:
        await served.create("orders", flush_messages="3")
        log = served.log("orders")
        with monkeypatch.context() as patched:
            sync_log(patched, before=fail)
            await served.produce("orders", batch_of(3))
            await until(lambda: log.offline_reason is not None)
        answer = await served.call(produce_request("orders", batch_of(1)), 9, ProduceResponse)
    assert only_produced(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
