"""Records without a key in a whole broker: which topic takes them, and what stays if it does not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.commands import run_command
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from server.durability.group_commit import GroupCommit
from server.handlers.shared.unkeyed_topic import refusal_of_unkeyed_topic
from server.security.acls import Operation, ResourceType
from storage.log.log import PartitionLog
from tests.harness.compacted_log import records_of
from tests.harness.lease_client import LeaseClient
from tests.harness.served_broker import NOW_MS
from tests.harness.steered_broker import SteeredBroker, steered_broker

Json = dict[str, Any]
MOVE = {"compaction.unkeyed.records": "move", "compaction.unkeyed.topic": "aside"}
TOPIC = 2


async def set_configs(broker: SteeredBroker, topic: str, **configs: str) -> tuple[ErrorCode, str]:
    """Change settings as a client does."""
    changes = tuple(
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in configs.items()
    )
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    response = await broker.served.call(request, 1, IncrementalAlterConfigsResponse)
    (answer,) = response.responses
    return ErrorCode(answer.error_code), answer.error_message or ""


async def produce(broker: SteeredBroker, topic: str, *values: bytes, key: bytes | None) -> None:
    records = [
        Record(offset=at, timestamp=NOW_MS, key=key, value=value) for at, value in enumerate(values)
    ]
    await broker.served.produce(topic, build_batch(records))


async def dirty(broker: SteeredBroker, *values: bytes) -> None:
    """Make a topic with records without a key compacted, which moves them."""
    await broker.served.create("orders")
    await broker.served.create("aside", 2)
    await produce(broker, "orders", *(values or (b"one", b"two")), key=None)
    await produce(broker, "orders", b"v", key=b"a")
    for code, text in (
        await set_configs(broker, "orders", cleanup_policy="compact"),
        await set_configs(
            broker,
            "orders",
            compaction_unkeyed_records="move",
            compaction_unkeyed_topic="aside",
        ),
    ):
        assert code == ErrorCode.NONE, text


async def run(broker: SteeredBroker, what: str = "now") -> Json:
    job = await broker.finished(await broker.post(f"/topics/orders/{what}"))
    (part,) = job["partitions"]
    assert part["state"] == "done", part
    found: Json = part["report" if what == "now" else "plan"]
    return found


def values(broker: SteeredBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in records_of(broker.served.log(topic))]


async def test_a_preview_is_refused_as_the_change_would_be(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        change = {"name": "compaction.unkeyed.topic", "operation": "set", "value": "nowhere"}
        status, answer = await broker.ask(
            "POST", "/topics/orders/preview", data=json.dumps({"changes": [change]})
        )

    assert (status, answer["error"]) == (
        409,
        "Invalid value 'nowhere' for configuration compaction.unkeyed.topic: there is no topic nowhere",
    )


async def test_records_without_a_key_are_in_the_other_topic_after_a_pass_and_a_restart(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path, flush_on_acks_all="false") as broker:
        await dirty(broker)
        plan = await run(broker, "plan")
        assert values(broker, "aside") == [], "a plan moves nothing"
        report = await run(broker)
        (segment,) = broker.served.log("aside").segments
        assert segment.files._writes_done == segment.files._writes_synced
    async with steered_broker(tmp_path) as broker:
        moved = records_of(broker.served.log("aside"))
        (entry,) = (await broker.get("/history"))["passes"]

        assert [record.value for record in moved] == [b"one", b"two"]
        assert dict(moved[1].headers)["kompakt.origin.offset"] == b"1"
        assert values(broker, "orders") == [b"v"]
    assert plan["report"]["unkeyed_moved"] == report["unkeyed_moved"] == 2
    assert report["unkeyed_topic"] == "aside"
    assert entry["unkeyed_moved"] == 2


async def test_a_preview_of_a_move_counts_what_would_go_and_moves_nothing(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        await set_configs(broker, "orders", compaction_unkeyed_records="keep")
        change = {"name": "compaction.unkeyed.records", "operation": "set", "value": "move"}
        status, job = await broker.ask(
            "POST", "/topics/orders/preview", data=json.dumps({"changes": [change]})
        )
        assert status == 202, job
        (part,) = (await broker.finished(job))["partitions"]

        compaction = part["preview"]["compaction"]
        assert (compaction["unkeyed_kept"], compaction["records_dropped"]) == (0, 2)
        assert compaction["plan"]["report"]["unkeyed_moved"] == 2
        assert values(broker, "aside") == []


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        pytest.param("delete", "there is no topic aside", id="deleted"),
        pytest.param("compact", "aside is compacted", id="compacted"),
        pytest.param("offline", "a partition of aside is offline", id="offline"),
        pytest.param("small", "takes at most 500", id="too_large"),
    ],
)
async def test_while_the_other_topic_takes_none_the_records_stay_and_the_pass_says_why(
    tmp_path: Path, spoil: str, why: str
) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker, b"x" * 1000, b"two")
        topics = broker.served.broker.topics
        aside = topics.get("aside")
        assert aside is not None
        match spoil:
            case "delete":
                await topics.delete(aside)
            case "compact":
                await topics.alter("aside", lambda old, _: {**old, "cleanup.policy": "compact"})
            case "offline":
                broker.served.log("aside").go_offline("a disk failed")
            case _:
                await topics.alter("aside", lambda old, _: {**old, "max.message.bytes": "500"})
        report = await run(broker)

        assert values(broker, "orders") == [b"x" * 1000, b"two", b"v"]
        assert why in report["unkeyed_kept_because"]
        assert report["records_by_verdict"]["kept_unkeyed"] == 2
        plan = (await run(broker, "plan"))["report"]
        assert (plan["unkeyed_kept_because"] is None) == (spoil == "small")


async def test_the_command_says_what_was_moved_or_why_it_was_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        command = ["compact", "now", "orders-0", "--url", broker.url]
        broker.served.log("aside").go_offline("a disk failed")
        assert await asyncio.to_thread(run_command, command) == 0
        refused = capsys.readouterr().out
        await broker.served.create("another")
        await set_configs(broker, "orders", compaction_unkeyed_topic="another")
        assert await asyncio.to_thread(run_command, command) == 0
        moved = capsys.readouterr().out

    assert "records without a key stay: a partition of aside is offline" in refused
    assert "2 records without a key moved to another" in moved


async def test_a_chunk_that_is_larger_than_a_batch_may_be_is_moved_in_parts(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker, *[b"%d" % number * 100 for number in range(9)])
        await set_configs(broker, "aside", max_message_bytes="700")

        report = await run(broker)

        assert report["unkeyed_moved"] == 9
        assert values(broker, "aside") == [b"%d" % number * 100 for number in range(9)]


async def test_a_pass_that_is_cancelled_while_it_moves_ends_and_drops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other topic's disk does not answer."""
    waits, answers = asyncio.Event(), asyncio.Event()

    async def hang(_commit: GroupCommit, _log: PartitionLog) -> None:
        waits.set()
        await answers.wait()

    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        with monkeypatch.context() as hanging:
            hanging.setattr(GroupCommit, "rest", hang)
            job = await broker.post("/topics/orders/now")
            await waits.wait()
            await broker.post("/topics/orders/cancel")
            (part,) = (await broker.finished(job))["partitions"]

        assert part["state"] != "done"
        assert values(broker, "orders") == [b"one", b"two", b"v"]


def test_a_client_without_write_on_the_other_topic_cannot_choose_it() -> None:
    def may(operation: Operation, kind: ResourceType, name: str) -> bool:
        return (operation, kind, name) != (Operation.WRITE, ResourceType.TOPIC, "aside")

    context: Any = SimpleNamespace(may=may)
    refused = refusal_of_unkeyed_topic("orders", {}, MOVE, context)

    assert refused is not None
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert refusal_of_unkeyed_topic("orders", MOVE, MOVE, context) is None, "it does not change"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("nowhere", "there is no topic nowhere"),
        ("orders", "cannot take its own records"),
        ("compacted", "is compacted"),
        ("__consumer_offsets", "is an internal topic"),
    ],
)
async def test_a_client_cannot_choose_a_topic_that_takes_none(
    tmp_path: Path, target: str, why: str
) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.served.create("compacted", cleanup_policy="compact")
        await broker.served.create("__consumer_offsets")
        refused = await set_configs(
            broker, "orders", compaction_unkeyed_records="move", compaction_unkeyed_topic=target
        )
        topic = CreatableTopic(
            name="more" if target != "orders" else "self",
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=tuple(
                CreatableTopicConfig(name=name, value="self" if value == "orders" else value)
                for name, value in {**MOVE, "compaction.unkeyed.topic": target}.items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,))
        created = await broker.served.call(request, 7, CreateTopicsResponse)

    assert refused[0] == ErrorCode.INVALID_CONFIG
    assert why in refused[1]
    assert created.topics[0].error_code == ErrorCode.INVALID_CONFIG
    assert why in (created.topics[0].error_message or "")


async def test_other_settings_can_change_after_the_topic_is_gone(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await dirty(broker)
        aside = broker.served.broker.topics.get("aside")
        assert aside is not None
        await broker.served.broker.topics.delete(aside)

        assert (await set_configs(broker, "orders", segment_ms="1000"))[0] == ErrorCode.NONE


async def test_executors_get_no_lease_for_a_topic_that_moves_records(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, log_cleaner_remote_enable="true") as broker:
        await dirty(broker)
        client = LeaseClient(broker, tmp_path, "/topics/orders/partitions/0")

        status, answer = await client.ask("POST")

    assert status == 409
    assert "only the broker's own cleaner moves records" in answer["error"]
