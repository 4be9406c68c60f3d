"""Passes that are undone in a whole broker, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.durability import space_watch
from server.topics.topic import Topic
from storage.files.errors import StorageError
from storage.formats.ledger_entry import Members
from storage.ledger.cleaning_ledger import CleaningLedger
from storage.log.cleaning import Undone
from storage.log.log import PartitionLog
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.served_broker import batch_of, serving_broker_on
from tests.harness.steered_broker import SteeredBroker, steered_broker
from tests.server.test_strategies import clean, produce, values

KEEPING = {"cleanup_policy": "compact", "compaction_undo_ms": "3600000"}
UNDO = "/topics/orders/partitions/0/undo"


async def dirty(broker: SteeredBroker, **settings: str) -> None:
    await broker.served.create("orders", 1, **(KEEPING | settings))
    for value in (b"1", b"2", b"3"):
        await produce(broker, b"a", value)


async def refused(broker: SteeredBroker, path: str, status: int) -> str:
    found, answer = await broker.ask("POST", path)
    assert found == status, answer
    return str(answer["error"])


async def history(broker: SteeredBroker) -> list[dict[str, Any]]:
    return list((await broker.get("/history"))["passes"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a timer sets no event
            await asyncio.sleep(0.01)


async def test_an_undo_brings_the_records_back_and_pauses_the_topic_across_a_restart(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        number = (await clean(broker))["undo_number"]
        assert values(broker) == {2: b"3"}
        (entry,) = await history(broker)
        assert entry["undo"]["refusal"] is None
        (kept,) = (await broker.get(UNDO))["partitions"]
        (one,) = kept["passes"]
        assert (one["number"], one["until_ms"]) == (number, entry["undo"]["until_ms"])
        assert kept["kept_bytes"] == one["bytes"] == broker.served.log("orders").kept_bytes

        answer = await broker.post(f"{UNDO}?pass={number}")

        assert (answer["segments_restored"], answer["clean_offset"]) == (1, 0)
        assert [each["topic"] for each in answer["paused"]["named"]] == ["orders"]
        assert values(broker) == {0: b"1", 1: b"2", 2: b"3"}
        assert "is paused" in await refused(broker, "/topics/orders/now", 409)
        (entry,) = await history(broker)
        assert entry["undo"] is None
    async with steered_broker(tmp_path) as broker:
        assert values(broker) == {0: b"1", 1: b"2", 2: b"3"}
        assert "is paused" in await refused(broker, "/topics/orders/now", 409)
        await broker.post("/topics/orders/resume")
        await clean(broker)
        assert values(broker) == {2: b"3"}


async def test_an_undo_is_in_the_ledger_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        number = (await clean(broker))["undo_number"]
        (entry,) = (await broker.get("/ledger?topic=orders&partition=0&offset=1"))["passes"]
        assert entry["groups"][0]["outcome"] == "swapped"

        await broker.post(f"{UNDO}?pass={number}")

        assert f"orders-0: pass {number} was undone: 1 segment put back" in caplog.text
        (entry,) = (await broker.get("/ledger?topic=orders"))["passes"]
        assert entry["groups"][0]["outcome"] == "undone"
        found = await broker.get("/ledger?topic=orders&partition=0&offset=1")
        assert found["passes"] == []
        job = await broker.finished(await broker.post("/topics/orders/find-key?key=a"))
        assert job["partitions"][0]["key"]["departures"] == []
        verification = await broker.post("/ledger/verify")
        while not verification["is_over"]:
            await asyncio.sleep(0.01)
            verification = await broker.get(f"/ledger/verify/{verification['id']}")
        assert verification["is_sound"], verification


async def test_an_undo_that_the_ledger_cannot_take_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: CleaningLedger, kind: str, members: Members) -> int:
        raise StorageError(f"no room for {kind}")

    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        number = (await clean(broker))["undo_number"]
        monkeypatch.setattr(CleaningLedger, "append", fail)

        await broker.post(f"{UNDO}?pass={number}")

        assert values(broker) == {0: b"1", 1: b"2", 2: b"3"}
        assert "the ledger does not have the undo: no room for undone" in caplog.text


async def test_a_refusal_says_why_and_pauses_nothing(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        first = (await clean(broker))["undo_number"]
        await produce(broker, b"a", b"4")
        second = (await clean(broker))["undo_number"]

        text = await refused(broker, f"{UNDO}?pass={first}", 409)

        assert text == (
            f"pass {first} of orders-0 cannot be undone: later passes have to be undone before it, in"
            f" this order: {second}"
        )
        assert "name a pass" in await refused(broker, UNDO, 400)
        assert (await broker.get())["paused"]["named"] == []
        assert len(values(broker)) == 1


@pytest.mark.parametrize("is_paused_before", [False, True])
async def test_a_disk_that_fails_in_an_undo_is_answered_with_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_paused_before: bool
) -> None:
    def fail(_: PartitionLog, number: int) -> Undone:
        raise StorageError(f"pass {number}: Input/output error")

    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        number = (await clean(broker))["undo_number"]
        if is_paused_before:
            await broker.post("/topics/orders/pause")
        monkeypatch.setattr(PartitionLog, "undo_pass", fail)

        text = await refused(broker, f"{UNDO}?pass={number}", 500)

        now = "" if is_paused_before else " now"
        assert text == (
            f"pass {number}: Input/output error; the cleaning of orders is paused{now}:"
            " kompakt compact resume orders"
        )


async def test_a_topic_of_several_partitions_needs_a_partition(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 2, **KEEPING)

        text = await refused(broker, "/topics/orders/undo?pass=1", 409)

        assert "name one of them" in text
        assert len((await broker.get("/topics/orders/undo"))["partitions"]) == 2


async def test_what_is_kept_goes_by_a_timer_when_the_setting_is_turned_off(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, log_retention_check_interval_ms="20") as broker:
        await dirty(broker)
        number = (await clean(broker))["undo_number"]
        log = broker.served.log("orders")
        assert log.kept_bytes

        altered = await broker.served.broker.topics.alter(
            "orders", lambda old, _: {**old, "compaction.undo.ms": "0"}
        )
        assert isinstance(altered, Topic)
        await until(lambda: not log.kept_bytes)

        assert "was set to 0" in await refused(broker, f"{UNDO}?pass={number}", 409)


async def test_what_is_kept_goes_first_when_the_disk_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_watch, "CHECK_SECONDS", 0.01)
    files = FaultyFileSystem()
    settings = {
        "log_cleaner_enable": "true",
        "log_cleaner_backoff_ms": "20",
        "log_cleaner_disk_pressure_free_bytes": "1000000",
    }
    async with serving_broker_on(files, tmp_path, **settings) as served:
        await served.create("orders", 1, min_cleanable_dirty_ratio="0", **KEEPING)
        for number in range(2):
            await served.produce("orders", batch_of(1, value=b"%d" % number))
        log = served.log("orders")
        log.roll(0)
        await until(lambda: log.kept_bytes > 0)
        (kept,) = log.passes_kept

        files.faults.space = 900_000
        await until(lambda: not log.kept_bytes)

        assert "nearly full" in str(log.undo_refusal(kept.number))
