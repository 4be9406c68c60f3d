"""The HTTP routes that control the cleaner, in a whole broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.broker import Broker
from server.config.config import BrokerConfig
from server.http import compaction_of
from server.runtime.clock import SystemClock
from storage.files.local_files import LocalFileSystem
from tests.harness.served_broker import serving_broker
from tests.harness.steered_broker import SteeredBroker, steered_broker

NOW = "/topics/orders/partitions/0/now"
RATIO = "1.0"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SteeredBroker]:
    async with steered_broker(tmp_path) as steered:
        await steered.served.create(
            "orders", 2, cleanup_policy="compact", min_cleanable_dirty_ratio=RATIO
        )
        await steered.produce_dirty("orders")
        yield steered


async def test_now_answers_at_once_with_a_job_that_rolls_and_cleans(broker: SteeredBroker) -> None:
    status, job = await broker.ask("POST", NOW)
    assert status == 202
    assert job["url"] == f"/v1/compaction/jobs/{job['id']}"

    (part,) = (await broker.finished(job))["partitions"]

    assert (part["topic"], part["partition"], part["state"]) == ("orders", 0, "done")
    assert part["report"]["records_after"] == 1
    assert part["progress"]["bytes_done"] == part["progress"]["bytes_planned"] > 0
    assert broker.served.log("orders").clean_offset == 3


async def test_now_of_a_topic_cleans_all_its_partitions(broker: SteeredBroker) -> None:
    job = await broker.finished(await broker.post("/topics/orders/now"))

    assert [part["partition"] for part in job["partitions"]] == [0, 1]
    assert job["is_done"]


async def test_plan_says_exactly_what_now_then_does(broker: SteeredBroker) -> None:
    planned = await broker.finished(await broker.post("/topics/orders/partitions/0/plan"))
    assert len(broker.served.log("orders").segments) == 1
    cleaned = await broker.finished(await broker.post(NOW))

    plan, report = planned["partitions"][0]["plan"], cleaned["partitions"][0]["report"]
    times = {"seconds", "throttled_seconds", "verify_seconds"}
    assert {key: value for key, value in plan["report"].items() if key not in times} == {
        key: value for key, value in report.items() if key not in times
    }
    (row,) = [segment.full_row() for segment in broker.served.log("orders").segments[:-1]]
    assert plan["groups"][0]["outputs"] == [
        {
            "base_offset": row.base_offset,
            "end_offset": row.end_offset,
            "bytes": row.size,
            "records": row.record_count,
        }
    ]
    assert plan["dies"]["superseded"]["records"] == 2
    assert plan["rolls_active_segment"]


async def test_plan_says_which_segment_loses_which_records(broker: SteeredBroker) -> None:
    broker.served.log("orders").roll(0)
    await broker.produce_dirty("orders", 2)

    planned = await broker.finished(await broker.post("/topics/orders/partitions/0/plan"))

    (group,) = planned["partitions"][0]["plan"]["groups"]
    died = [source["dies"]["superseded"] for source in group["sources"]]
    assert [(source["base_offset"], source["end_offset"]) for source in group["sources"]] == [
        (0, 3),
        (3, 5),
    ]
    assert [each["records"] for each in died] == [3, 1]
    assert group["dies"]["superseded"] == {
        key: sum(each[key] for each in died) for key in ("records", "record_bytes")
    }


async def test_status_shows_running_queued_paused_and_last_passes(broker: SteeredBroker) -> None:
    await broker.post("/topics/orders/partitions/1/pause")
    await broker.finished(await broker.post(NOW))

    status = await broker.get()

    assert status["running"] == []
    assert status["queue"] == []
    assert status["quarantined"] == []
    assert [(each["topic"], each["partition"]) for each in status["paused"]["named"]] == [
        ("orders", 1)
    ]
    (last,) = status["last_passes"]
    assert last["reason"] == "REQUESTED"
    assert status["throttle"]["total_bytes_per_second"] is None
    guard = status["throttle"]["latency_guard"]
    assert guard["is_enabled"]
    assert {"bytes_per_second", "quiet_p99_seconds"} <= guard.keys()


async def test_status_lists_the_queue_by_urgency_and_what_runs_with_its_progress(
    tmp_path: Path,
) -> None:
    slow = {"log_cleaner_io_max_bytes_per_second": "1", "log_cleaner_latency_guard_enable": "false"}
    async with steered_broker(tmp_path, **slow) as broker:
        for topic in ("first", "second"):
            await broker.served.create(
                topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0"
            )
            await broker.produce_dirty(topic)
        first, second = broker.served.log("first"), broker.served.log("second")
        job = await broker.post("/topics/first/now")
        second.roll(0)

        status = await broker.get()
        while not status["running"]:
            status = await broker.get()

        (running,) = status["running"]
        assert (running["topic"], running["task"]) == ("first", "clean")
        while running["progress"]["bytes_planned"] < 2 * first.segments[0].size:
            # The bytes to read for key sidecars are known only after the cleaner has looked for these.
            (running,) = (await broker.get())["running"]
        assert running["progress"]["bytes_planned"] == 2 * first.segments[0].size
        assert [each["topic"] for each in status["queue"]] == ["second"]
        assert status["throttle"]["total_bytes_per_second"] == 1.0
        assert (await broker.ask("DELETE", f"/jobs/{job['id']}"))[0] == 200
        (part,) = (await broker.finished(job))["partitions"]
        assert (part["state"], part["error"]) == ("stopped", "it was cancelled")


async def test_what_runs_over_a_topic_and_what_waits_to_is_cancelled(tmp_path: Path) -> None:
    slow = {"log_cleaner_io_max_bytes_per_second": "1", "log_cleaner_latency_guard_enable": "false"}
    async with steered_broker(tmp_path, **slow) as broker:
        for topic in ("first", "second"):
            await broker.served.create(topic, cleanup_policy="compact")
            await broker.produce_dirty(topic)
        runs = await broker.post("/topics/first/now")
        status = await broker.get()
        while not status["running"]:
            status = await broker.get()
        waits = await broker.post("/topics/second/now")

        for topic, job, was_running in (("second", waits, False), ("first", runs, True)):
            answer = await broker.post(f"/topics/{topic}/cancel")
            (stopped,) = answer["cancelled"]
            assert (stopped["topic"], stopped["was_running"]) == (topic, was_running)
            (part,) = (await broker.finished(job))["partitions"]
            assert (part["state"], part["error"]) == ("stopped", "it was cancelled")

        assert (await broker.post("/topics/first/cancel")) == {"cancelled": []}
        assert (await broker.ask("POST", "/topics/nope/cancel"))[0] == 404


async def test_a_pause_survives_a_restart_and_refuses_now_unless_forced(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await broker.post("/topics/orders/pause")

    async with steered_broker(tmp_path) as broker:
        status, answer = await broker.ask("POST", NOW)
        assert status == 409
        assert "paused (topic): resume it first, or force the pass" in answer["error"]
        job = await broker.finished(await broker.post(NOW + "?force=true"))
        assert job["is_done"]
        await broker.post("/topics/orders/resume")
        assert (await broker.get())["paused"] == {"everything_since_ms": None, "named": []}


async def test_a_topic_created_again_under_its_name_is_not_paused(broker: SteeredBroker) -> None:
    await broker.post("/topics/orders/pause")
    topic = broker.served.broker.topics.get("orders")
    assert topic is not None
    await broker.served.broker.topics.delete(topic)
    await broker.served.create("orders", cleanup_policy="compact")

    assert (await broker.get())["paused"]["named"] == []
    assert (await broker.finished(await broker.post(NOW)))["is_done"]


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("POST", "/topics/orders/partitions/2/now", 404, "has no partition 2: it has 2"),
        ("POST", "/topics/orders/partitions/x/now", 404, "not the number of a partition"),
        ("POST", "/topics/plain/plan", 409, "plain-0 is not compacted: set cleanup.policy"),
        ("POST", "/topics/orders/now?force=1", 400, "force is true or false, not '1'"),
        ("GET", "/jobs/99", 404, "there is no job 99"),
        ("GET", "/jobs/x", 404, "there is no job x"),
    ],
)
async def test_an_impossible_request_is_refused_with_a_sentence(
    broker: SteeredBroker, method: str, path: str, status: int, sentence: str
) -> None:
    await broker.served.create("plain", cleanup_policy="delete")

    answered, answer = await broker.ask(method, path)

    assert answered == status
    assert sentence in answer["error"]
    assert answer.keys() == {"error"}


@pytest.mark.parametrize("path", ["/topics/nope/now", "/topics/nope/partitions/3/pause"])
async def test_a_topic_that_does_not_exist_is_refused_with_a_code(
    broker: SteeredBroker, path: str
) -> None:
    status, answer = await broker.ask("POST", path)

    assert (status, answer["code"]) == (404, "unknown_topic")
    assert answer["error"].startswith("there is no topic nope")


async def test_a_narrower_resume_than_the_pause_is_refused(broker: SteeredBroker) -> None:
    await broker.post("/topics/orders/pause")
    status, answer = await broker.ask("POST", "/topics/orders/partitions/0/resume")
    assert (status, "paused as a whole" in answer["error"]) == (409, True)

    await broker.post("/pause")
    status, answer = await broker.ask("POST", "/topics/orders/resume")
    assert (status, "all cleaning is paused" in answer["error"]) == (409, True)


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example:9644"}]
)
async def test_a_page_in_a_browser_cannot_control_the_broker(
    broker: SteeredBroker, headers: dict[str, str]
) -> None:
    status, _ = await broker.ask("POST", "/pause", headers=headers)

    assert status == 403
    assert (await broker.get())["paused"]["everything_since_ms"] is None


async def test_without_a_cleaner_it_says_so(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, log_cleaner_enable="false") as broker:
        status, answer = await broker.ask("GET", "")

    assert status == 503
    assert answer["error"] == "the cleaner is off: log.cleaner.enable=false"


async def test_before_the_broker_is_ready_it_says_so(tmp_path: Path) -> None:
    config = BrokerConfig.from_texts({"log.dirs": str(tmp_path)})
    broker = Broker(config, files=LocalFileSystem(), clock=SystemClock())

    assert compaction_of(broker) == "the broker is not ready: starting"


async def test_a_stop_ends_running_jobs(tmp_path: Path) -> None:
    slow = {"log_cleaner_io_max_bytes_per_second": "1"}
    async with steered_broker(tmp_path, **slow) as broker:
        await broker.served.create("orders", 2, cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await broker.post("/topics/orders/now")

    async with serving_broker(tmp_path) as served:
        assert served.log("orders").clean_offset == 0


async def test_a_key_is_found_with_its_fate(broker: SteeredBroker) -> None:
    job = await broker.finished(await broker.post("/topics/orders/find-key?key=key"))

    first, second = (part["key"] for part in job["partitions"])
    assert [record["offset"] for record in first["records"]] == [0, 1, 2]
    assert [record["superseded_by"] for record in first["records"]] == [2, 2, None]
    assert first["key_hex"] == b"key".hex()
    assert second["is_gone"]

    await broker.finished(await broker.post("/topics/orders/now"))
    again = await broker.post("/topics/orders/partitions/0/find-key?key_hex=6b6579")
    (part,) = (await broker.finished(again))["partitions"]
    assert [record["offset"] for record in part["key"]["records"]] == [2]


@pytest.mark.parametrize("query", ["", "?key=a&key_hex=61", "?key_hex=xyz"])
async def test_a_request_must_name_exactly_one_key(broker: SteeredBroker, query: str) -> None:
    status, answer = await broker.ask("POST", "/topics/orders/find-key" + query)

    assert status == 400
    assert "key" in answer["error"] or "hexadecimal" in answer["error"]


async def test_a_digest_is_the_same_before_and_after_a_pass(broker: SteeredBroker) -> None:
    async def digests(query: str = "") -> list[dict[str, object]]:
        job = await broker.finished(await broker.post(f"/topics/orders/digest{query}"))
        assert job["is_done"]
        return [part["digest"] for part in job["partitions"]]

    dirty, empty = await digests()
    assert dirty.items() >= {"start_offset": 0, "end_offset": 3, "keys": 1}.items()
    assert (empty["keys"], empty["digest"]) == (0, "0" * 32)
    job = await broker.finished(await broker.post(NOW))
    assert job["partitions"][0]["report"]["records_after"] == 1

    clean, _ = await digests()

    assert clean == dirty | {"clean_offset": 3}


async def test_a_digest_ends_where_it_is_asked_to_if_the_log_is_stable_there(
    broker: SteeredBroker,
) -> None:
    where = "/topics/orders/partitions/0/digest"
    job = await broker.finished(await broker.post(f"{where}?end_offset=2"))
    assert job["partitions"][0]["digest"]["end_offset"] == 2

    status, answer = await broker.ask("POST", f"{where}?end_offset=4")
    assert status == 409
    assert "end offset 4 is not in [0, 3]" in answer["error"]
    assert (await broker.ask("POST", f"{where}?end_offset=x"))[0] == 400


async def test_a_topic_that_is_not_compacted_has_a_digest(broker: SteeredBroker) -> None:
    await broker.served.create("plain", cleanup_policy="delete")
    await broker.produce_dirty("plain")

    job = await broker.finished(await broker.post("/topics/plain/digest"))

    assert job["partitions"][0]["digest"]["keys"] == 1


async def test_a_digest_that_a_budget_holds_is_seen_running_and_can_be_stopped(
    tmp_path: Path,
) -> None:
    slow = {"log_cleaner_io_max_bytes_per_second": "1", "log_cleaner_latency_guard_enable": "false"}
    async with steered_broker(tmp_path, **slow) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        job = await broker.post("/topics/orders/digest")

        status = await broker.get()
        while not status["running"]:
            status = await broker.get()
        (running,) = status["running"]
        assert (running["topic"], running["task"]) == ("orders", "digest")
        await broker.ask("DELETE", f"/jobs/{job['id']}")

        (part,) = (await broker.finished(job))["partitions"]
        assert (part["state"], part["error"]) == ("stopped", "it was cancelled")
        assert part["digest"] is None
        assert (await broker.get())["quarantined"] == []
