"""The HTTP routes for leases, in a whole broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.wire.numbers import Offset
from server.admin import lease_routes
from tests.harness.lease_client import LeaseClient, executed
from tests.harness.steered_broker import SteeredBroker, steered_broker

ORDERS = "/topics/orders/partitions/0"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SteeredBroker]:
    async with steered_broker(tmp_path, log_cleaner_remote_enable="true") as steered:
        await steered.served.create(
            "orders", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0"
        )
        await steered.produce_dirty("orders")
        yield steered


@pytest.fixture
def client(broker: SteeredBroker, tmp_path: Path) -> LeaseClient:
    return LeaseClient(broker, tmp_path, ORDERS)


def folders(directory: Path) -> list[str]:
    return [each.name for each in directory.glob("leases/*")]


async def until_no_folder(directory: Path) -> None:
    async with asyncio.timeout(20):
        while folders(directory):  # noqa: ASYNC110 - what the disk shows is meant
            await asyncio.sleep(0.01)


async def test_a_leased_log_is_cleaned_remotely_and_committed(
    broker: SteeredBroker, client: LeaseClient, tmp_path: Path
) -> None:
    lease, plan = await client.begin()
    assert folders(tmp_path) == [lease]

    job = await client.commit(lease, await executed(plan))

    (part,) = job["partitions"]
    assert (job["kind"], part["state"], part["error"]) == ("commit", "done", None)
    assert (part["report"]["records_before"], part["report"]["records_after"]) == (3, 1)
    assert broker.served.log("orders").clean_offset == 3
    assert folders(tmp_path) == []
    history = await broker.get("/history")
    assert [each["result"] for each in history["passes"]] == ["completed"]


async def test_a_leased_log_is_not_cleaned_by_others_and_shows_as_leased(
    broker: SteeredBroker, client: LeaseClient
) -> None:
    lease, _ = await client.begin()

    now = await broker.post(f"{ORDERS}/now")
    status = await broker.get()
    told = await broker.get(f"{ORDERS}/explain")
    again = await client.ask("POST")

    assert [(each["topic"], each["task"]) for each in status["running"]] == [("orders", "lease")]
    assert "another process, which has a lease" in told["partitions"][0]["text"]
    assert broker.served.broker.cleaner_counts.leases == 1
    assert again == (409, {"error": "orders-0 is busy with another task: lease"})
    assert not now["is_over"]
    assert await client.ask("DELETE", f"/{lease}") == (200, {"lease": lease, "is_over": True})
    assert (await broker.finished(now))["is_done"]
    assert broker.served.broker.cleaner_counts.leases == 0


async def test_a_lease_that_is_not_renewed_ends_and_its_folder_goes(tmp_path: Path) -> None:
    properties = {"log_cleaner_remote_enable": "true", "log_cleaner_remote_lease_ms": "1000"}
    async with steered_broker(tmp_path, **properties) as broker:
        await broker.served.create(
            "orders", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0"
        )
        await broker.produce_dirty("orders")
        client = LeaseClient(broker, tmp_path, ORDERS)
        lease, plan = await client.begin()
        assert await client.ask("POST", f"/{lease}/renew") == (200, {"seconds": 1.0})
        result = await executed(plan)

        await until_no_folder(tmp_path)

        status, answer = await client.ask("POST", f"/{lease}/commit", data=result.to_json())
        assert (status, answer["error"]) == (409, f"there is no lease {lease} on orders-0")
        # The broker's own cleaner may take it again.
        assert (await broker.finished(await broker.post(f"{ORDERS}/now")))["is_done"]


async def test_a_pause_ends_a_lease(
    broker: SteeredBroker, client: LeaseClient, tmp_path: Path
) -> None:
    lease, _ = await client.begin()

    await broker.post("/topics/orders/pause")

    await until_no_folder(tmp_path)
    assert (await client.ask("POST", f"/{lease}/renew"))[0] == 409
    assert await client.ask("POST") == (409, {"error": "cleaning of orders-0 is paused (topic)"})


async def test_a_stop_of_the_broker_ends_leases(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, log_cleaner_remote_enable="true") as broker:
        await broker.served.create("orders", 1, cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await LeaseClient(broker, tmp_path, ORDERS).begin()

    assert folders(tmp_path) == []


async def test_the_next_start_removes_the_folders_of_leases(tmp_path: Path) -> None:
    (tmp_path / "leases" / ("a" * 32) / ("b" * 32)).mkdir(parents=True)

    async with steered_broker(tmp_path):
        assert not (tmp_path / "leases").exists()


async def test_a_result_for_a_log_that_has_changed_is_refused(
    broker: SteeredBroker, client: LeaseClient, tmp_path: Path
) -> None:
    lease, plan = await client.begin()
    result = await executed(plan)
    log = broker.served.log("orders")

    log.update_config(replace(log.config, cleanup_policy=("compact", "delete")))
    job = await client.commit(lease, result)

    (part,) = job["partitions"]
    assert part["state"] == "stopped"
    assert part["error"] == "the log was truncated, deleted or reconfigured, or is held"
    assert folders(tmp_path) == []
    lease, _ = await client.begin()
    log.update_config(replace(log.config, cleanup_policy=("compact",)))
    assert await client.ask("POST", f"/{lease}/renew") == (
        409,
        {"error": f"lease {lease} has ended: the log has changed"},
    )
    await until_no_folder(tmp_path)


async def test_a_change_of_the_log_ends_its_lease_early(
    broker: SteeredBroker, client: LeaseClient, tmp_path: Path
) -> None:
    await client.begin()

    topics = broker.served.broker.topics
    orders = topics.get("orders")
    assert orders is not None
    await topics.delete(orders)

    await until_no_folder(tmp_path)
    assert (await broker.get())["running"] == []


async def test_a_result_that_does_not_match_the_plan_changes_nothing_and_says_why(
    broker: SteeredBroker, client: LeaseClient, tmp_path: Path
) -> None:
    lease, plan = await client.begin()
    result = await executed(plan)
    log = broker.served.log("orders")
    before = [each.row() for each in log.segments[:-1]]

    job = await client.commit(lease, replace(result, end_offset=Offset(99)))

    (part,) = job["partitions"]
    assert (part["state"], part["error"]) == (
        "failed",
        "it ends at offset 99, the plan covers [0, 3)",
    )
    assert [each.row() for each in log.segments[:-1]] == before
    assert folders(tmp_path) == []
    assert (await broker.get())["quarantined"] == []
    assert (await broker.finished(await broker.post(f"{ORDERS}/now")))["is_done"]


@pytest.mark.parametrize(
    ("data", "version"), [("{}", "None"), ('{"format": 1, "lease": "of an older release"}', "1")]
)
async def test_an_invalid_result_is_refused_and_the_lease_continues(
    client: LeaseClient, data: str, version: str
) -> None:
    lease, plan = await client.begin()

    status, answer = await client.ask("POST", f"/{lease}/commit", data=data)

    assert status == 400
    assert answer["error"].startswith(
        f"the result has format {version}, this release reads format "
    )
    job = await client.commit(lease, await executed(plan))
    assert job["is_done"]


@pytest.mark.parametrize(
    "shown", [None, "", "Bearer", "Bearer x", "Basic {token}", "bearer {token}"]
)
async def test_a_client_without_the_token_is_refused(
    broker: SteeredBroker, client: LeaseClient, shown: str | None
) -> None:
    token = client.headers["Authorization"].removeprefix("Bearer ")
    client.headers = {} if shown is None else {"Authorization": shown.format(token=token)}

    status, answer = await client.ask("POST")

    assert (status, sorted(answer)) == (401, ["error"])
    assert (await broker.get())["running"] == []


async def test_leases_are_off_by_default(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, cleanup_policy="compact")
        status, answer = await broker.ask("POST", f"{ORDERS}/lease")

    assert status == 403
    assert "log.cleaner.remote.enable=false" in answer["error"]
    assert not (tmp_path / "remote-cleaning.token").exists()


async def test_only_the_owner_can_read_the_token_and_it_does_not_change(tmp_path: Path) -> None:
    path = tmp_path / "remote-cleaning.token"
    tokens = set()
    for _ in range(2):
        async with steered_broker(tmp_path, log_cleaner_remote_enable="true"):
            tokens.add(path.read_text())
            assert path.stat().st_mode & 0o777 == 0o600

    assert len(tokens) == 1


async def test_the_hash_key_is_in_no_answer(client: LeaseClient, tmp_path: Path) -> None:
    _, plan = await client.begin()

    key = (tmp_path / "hash.key").read_bytes()

    assert key.hex() not in plan.to_json()


async def test_a_page_of_another_site_cannot_lease_a_log(
    broker: SteeredBroker, client: LeaseClient
) -> None:
    client.headers["Origin"] = "http://evil.example"

    assert (await client.ask("POST"))[0] == 403


@pytest.mark.parametrize("where", ["/topics/none/partitions/0", "/topics/orders/partitions/7"])
async def test_a_missing_log_cannot_be_leased(
    broker: SteeredBroker, tmp_path: Path, where: str
) -> None:
    assert (await LeaseClient(broker, tmp_path, where).ask("POST"))[0] == 404


async def test_a_log_that_is_not_compacted_cannot_be_leased(
    broker: SteeredBroker, tmp_path: Path
) -> None:
    await broker.served.create("plain", 1)
    client = LeaseClient(broker, tmp_path, "/topics/plain/partitions/0")

    assert await client.ask("POST") == (409, {"error": "plain-0 is not compacted"})


async def test_a_result_that_is_not_sent_whole_is_refused_in_time(
    broker: SteeredBroker, client: LeaseClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_routes, "RESULT_SECONDS", 0.05)
    lease, _ = await client.begin()
    never = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    status, answer = await client.ask("POST", f"/{lease}/commit", data=half())

    assert (status, answer["error"]) == (408, "a result must arrive within 0.05 s")
    assert (await client.ask("POST", f"/{lease}/renew"))[0] == 200


async def test_a_result_that_cannot_be_inflated_is_refused(
    client: LeaseClient,
) -> None:
    lease, _ = await client.begin()
    client.headers["Content-Encoding"] = "gzip"

    status, answer = await client.ask("POST", f"/{lease}/commit", data=b"no gzip")

    assert (status, answer["error"].split(":")[0]) == (400, "the body cannot be read")
