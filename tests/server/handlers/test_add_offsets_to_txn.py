"""AddOffsetsToTxn: the group's partition of `__consumer_offsets` is in the transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker
from tests.harness.transaction_requests import add_offsets, described, init


@pytest.mark.parametrize("version", range(5))
async def test_the_groups_partition_is_in_the_transaction_once_it_is_said(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        producer = await init(served)
        assert await add_offsets(served, producer, "group", version) is ErrorCode.NONE
        partition = served.broker.groups.topic.partition_of("group")
        topics = (await described(served)).topics
    assert [(each.topic, each.partitions) for each in topics] == [
        ("__consumer_offsets", (partition,))
    ]


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
async def test_who_was_replaced_hears_so_in_terms_of_its_version(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        old = await init(served)
        await init(served)
        assert await add_offsets(served, old, "group", version) is code


async def test_a_group_without_a_name_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        producer = await init(served)
        assert await add_offsets(served, producer, "") is ErrorCode.INVALID_GROUP_ID
