"""A group that lags holds a broker's tombstones, pass after pass, until it has read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.internal_topics.group_records import GroupRecord
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import CoordinatorTopic, PreparedBatch
from server.coordination.groups.holds import INVALIDATED_MS
from server.coordination.groups.offset_checks import OUTSIDE
from tests.harness.offsets_world import commit as record_of
from tests.harness.served_broker import batch_of, records_in
from tests.harness.steered_broker import SteeredBroker, steered_broker

LINK = "__mirror.dr"
TOPIC = {"cleanup_policy": "compact", "delete_retention_ms": "0"}


async def commit(broker: SteeredBroker, offset: int) -> int:
    """Commit as a link does. Returns the error code."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name="orders", partitions=(partition,))
    request = OffsetCommitRequest(group_id=LINK, topics=(topic,))
    response = await broker.served.call(request, 8, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


async def produce(broker: SteeredBroker, key: bytes, value: bytes | None) -> None:
    await broker.served.produce("orders", batch_of(1, key=key, value=value))  # type: ignore[arg-type]


async def clean(broker: SteeredBroker) -> dict[str, Any]:
    """Run a pass. Returns its report."""
    job = await broker.finished(await broker.post("/topics/orders/now"))
    (part,) = job["partitions"]
    assert part["state"] == "done", part
    report: dict[str, Any] = part["report"]
    return report


async def offsets(broker: SteeredBroker) -> list[int]:
    return [record.offset for record in records_in(await broker.served.fetch("orders", 0))]


async def deleted_keys(broker: SteeredBroker) -> None:
    """Produce two deletions, at offsets 1 and 3, and the log's last record."""
    await broker.served.create("orders", 1, **TOPIC)
    for key, value in ((b"a", b"1"), (b"a", None), (b"b", b"1"), (b"b", None), (b"c", b"1")):
        await produce(broker, key, value)


async def test_tombstones_stay_until_the_group_has_read_them(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await deleted_keys(broker)
        assert await commit(broker, 2) == ErrorCode.NONE

        for number in range(3):
            await clean(broker)
            await produce(broker, b"c", b"%d" % number)
        report = await clean(broker)
        assert (report["hold_offset"], report["held_by"]) == (2, f"group {LINK}")
        assert report["records_by_verdict"]["kept_held"] == 1
        assert 3 in (found := await offsets(broker))
        assert 1 not in found

        await commit(broker, 4)
        await clean(broker)
        assert not {1, 3} & set(await offsets(broker))


async def test_a_hold_survives_a_restart(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await deleted_keys(broker)
        await commit(broker, 0)
        await clean(broker)

    async with steered_broker(tmp_path) as broker:
        for number in range(2):
            await produce(broker, b"c", b"%d" % number)
            await clean(broker)
        assert {1, 3} <= set(await offsets(broker))


async def test_explain_and_a_rehearsal_say_what_is_held_and_by_whom(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await deleted_keys(broker)
        await commit(broker, 2)
        await clean(broker)
        await clean(broker)

        (explanation,) = (await broker.get("/topics/orders/partitions/0/explain"))["partitions"]
        held = explanation["findings"][-1]
        job = await broker.finished(await broker.post("/topics/orders/plan"))

        assert explanation["text"].startswith("orders-0 is not being compacted: every record")
        assert held["obstacle"] == "held"
        assert held["text"] == (
            f"tombstones and markers from offset 2 on stay: group {LINK} holds them"
        )
        assert job["partitions"][0]["plan"]["report"]["held_by"] == f"group {LINK}"


async def test_a_live_link_cannot_be_deleted(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await deleted_keys(broker)
        await commit(broker, 2)
        request = DeleteGroupsRequest(groups_names=(LINK,))
        answer = await broker.served.call(request, 2, DeleteGroupsResponse)
        assert answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP


async def test_a_slot_that_is_invalidated_during_a_commit_fails_no_other_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 2, **TOPIC)
        for partition in (0, 1):
            await broker.served.produce("orders", batch_of(1), partition)
        await commit_both(broker, 1)
        prepare = CoordinatorTopic.prepare

        async def invalidate_first(topic: CoordinatorTopic, *arguments: Any) -> PreparedBatch:
            monkeypatch.setattr(CoordinatorTopic, "prepare", prepare)
            prepared = await topic.prepare(*arguments)
            await broker.served.broker.offsets.commit(LINK, OUTSIDE, [invalidated()])
            return prepared

        monkeypatch.setattr(CoordinatorTopic, "prepare", invalidate_first)

        assert await commit_both(broker, 2) == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]


def invalidated() -> GroupRecord:
    """Returns the record that invalidates the link's slot in partition 0."""
    return record_of(0, 1, group=LINK, topic="orders", commit_timestamp=INVALIDATED_MS)


async def commit_both(broker: SteeredBroker, offset: int) -> list[int]:
    """Commit for both partitions. Returns the error codes."""
    partitions = tuple(
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=None
        )
        for index in (0, 1)
    )
    topic = OffsetCommitRequestTopic(name="orders", partitions=partitions)
    request = OffsetCommitRequest(group_id=LINK, topics=(topic,))
    response = await broker.served.call(request, 8, OffsetCommitResponse)
    return [each.error_code for each in response.topics[0].partitions]
