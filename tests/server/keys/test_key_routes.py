"""The HTTP routes that count the keys of a topic, in a whole broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.records.record_batch import Record, build_batch
from server.admin.compaction_jobs import FINISHED_OF_KIND_MAX
from server.keys.key_routes import TOP_MAX
from tests.harness.steered_broker import Json, SteeredBroker, steered_broker

KEYS = "/topics/orders/keys"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SteeredBroker]:
    async with steered_broker(tmp_path) as steered:
        await steered.served.create("orders", 2, cleanup_policy="compact")
        await produce(steered, 0, (b"alice", b"1"), (b"bob", b"1"), (b"alice", b"2"))
        await produce(steered, 0, (b"bob", None))
        await produce(steered, 1, (b"\x00\xff", b"1"), (b"carol", b"1"))
        yield steered


async def produce(
    broker: SteeredBroker, partition: int, *pairs: tuple[bytes, bytes | None]
) -> None:
    records = [
        Record(offset=number, timestamp=1000, key=key, value=value)
        for number, (key, value) in enumerate(pairs)
    ]
    await broker.served.produce("orders", build_batch(records), partition=partition)


async def counted(broker: SteeredBroker, path: str = KEYS) -> Json:
    """Returns a finished count with its keys."""
    job = await broker.finished(await broker.post(path))
    assert job["is_done"], job
    return await broker.get(f"{KEYS}/{job['id']}")


async def test_the_keys_of_each_partition_and_of_the_topic_are_counted(
    broker: SteeredBroker,
) -> None:
    answer = await counted(broker)

    first, second = (part["keys"] for part in answer["partitions"])
    assert (first["keys"], first["live_keys"], first["deleted_keys"]) == (2, 1, 1)
    assert (first["records"], first["superseded"], first["tombstones"]) == (4, 2, 1)
    assert (second["keys"], second["records"]) == (2, 2)
    total = answer["total"]
    assert (total["keys"], total["live_keys"], total["records"]) == (4, 3, 6)
    assert total["versions"] == [
        {"least": 1, "most": 1, "keys": 2, "records": 2},
        {"least": 2, "most": 2, "keys": 2, "records": 4},
    ]
    assert first["growth"]["new_keys"] == 2
    assert (
        first["no_forecasts_because"] == "the records since the last pass are less than a day old"
    )


async def test_hot_keys_are_named_as_text_or_in_hexadecimal(broker: SteeredBroker) -> None:
    total = (await counted(broker, f"{KEYS}?top=4"))["total"]

    named = [(each["partition"], each["key"], each["key_hex"]) for each in total["hot_keys"]]
    assert sorted(named, key=str) == [
        (0, "alice", b"alice".hex()),
        (0, "bob", b"bob".hex()),
        (1, "carol", b"carol".hex()),
        (1, None, "00ff"),
    ]
    assert [each["records"] for each in total["hot_keys"]] == [2, 2, 1, 1]
    assert total["hot_keys"][0]["is_key_cut"] is False


async def test_only_the_route_that_needs_read_shows_keys(broker: SteeredBroker) -> None:
    job = await broker.finished(await broker.post("/topics/orders/partitions/0/keys?top=1"))

    assert job["is_done"]
    assert "alice" not in str(job)
    assert b"alice".hex() not in str(job)
    shown = await broker.get(f"/topics/orders/partitions/0/keys/{job['id']}")
    assert shown["partitions"][0]["keys"]["hot_keys"][0]["key"] == "alice"


async def test_a_pass_between_two_counts_changes_no_key(broker: SteeredBroker) -> None:
    before = (await counted(broker))["total"]

    await broker.finished(await broker.post("/topics/orders/now"))
    after = await counted(broker)

    assert (after["total"]["live_keys"], after["total"]["superseded"]) == (before["live_keys"], 0)
    assert after["partitions"][0]["keys"]["no_growth_because"] == (
        "nothing was appended since the last pass"
    )


REFUSALS = [
    ("POST", "/topics/nope/keys", 404, "there is no topic nope"),
    ("POST", "/topics/orders/partitions/2/keys", 404, "has no partition 2: it has 2"),
    ("POST", "/topics/plain/keys", 409, "plain-0 is not compacted: set cleanup.policy"),
    ("POST", f"{KEYS}?top=0", 400, "top is a number from 1 to 100 here"),
    ("POST", f"{KEYS}?top={TOP_MAX + 1}", 400, f"top is a number from 1 to {TOP_MAX} here"),
    ("GET", f"{KEYS}/99", 404, "there is no such count of the keys of orders"),
    ("GET", f"{KEYS}/x", 404, "there is no such count of the keys of orders"),
]


async def test_an_impossible_count_is_refused_with_a_sentence(broker: SteeredBroker) -> None:
    await broker.served.create("plain", cleanup_policy="delete")

    for method, path, status, sentence in REFUSALS:
        answered, answer = await broker.ask(method, path)
        assert (answered, sentence in answer["error"]) == (status, True), answer


async def test_a_count_of_another_topic_is_not_shown(broker: SteeredBroker) -> None:
    await broker.served.create("other", cleanup_policy="compact")
    job = await broker.finished(await broker.post(KEYS))
    digest = await broker.finished(await broker.post("/topics/other/digest"))

    for number in (job["id"], digest["id"]):
        status, answer = await broker.ask("GET", f"/topics/other/keys/{number}")
        assert (status, "count of the keys of other" in answer["error"]) == (404, True)


async def test_a_count_that_a_budget_holds_is_seen_running_and_can_be_stopped(
    tmp_path: Path,
) -> None:
    slow = {"log_cleaner_io_max_bytes_per_second": "1", "log_cleaner_latency_guard_enable": "false"}
    async with steered_broker(tmp_path, **slow) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        job = await broker.post(KEYS)

        status = await broker.get()
        while not status["running"]:
            status = await broker.get()
        assert [each["task"] for each in status["running"]] == ["keys"]
        shown = await broker.get(f"{KEYS}/{job['id']}")
        assert (shown["is_over"], shown["total"]) == (False, None)
        await broker.post("/topics/orders/cancel")

        (part,) = (await broker.finished(job))["partitions"]
        assert (part["state"], part["error"]) == ("stopped", "it was cancelled")
        assert (await broker.get(f"{KEYS}/{job['id']}"))["total"] is None


async def test_only_the_last_counts_are_kept(broker: SteeredBroker) -> None:
    path = "/topics/orders/partitions/1/keys"
    jobs = [await broker.finished(await broker.post(path)) for _ in range(12)]
    digest = await broker.post("/topics/orders/partitions/1/digest")

    answers = [(await broker.ask("GET", f"/jobs/{job['id']}"))[0] for job in jobs]

    assert answers == [404] * 2 + [200] * FINISHED_OF_KIND_MAX["keys"]
    await broker.finished(digest)
