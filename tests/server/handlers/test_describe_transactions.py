"""DescribeTransactions: each transactional id is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker
from tests.harness.transaction_requests import add, described, init


async def test_an_open_transaction_is_told_with_its_partitions(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("a", 2)
        await served.create("b")
        producer = await init(served, timeout_ms=5_000)
        await add(served, producer, {"b": (0,), "a": (1, 0)})
        state = await described(served)
    assert (state.error_code, state.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert (state.producer_id, state.producer_epoch) == (producer.id, producer.epoch)
    assert state.transaction_timeout_ms == 5_000
    assert state.transaction_start_time_ms > 0
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [
        ("a", (0, 1)),
        ("b", (0,)),
    ]


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)],
)
async def test_an_id_that_nobody_has_is_an_error(
    tmp_path: Path, transactional_id: str, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        state = await described(served, transactional_id)
    assert (state.error_code, state.transactional_id) == (code, transactional_id)
