"""EndTxn: decided when it is answered, complete soon after."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.transaction_requests import add, end, init, until_state


async def begun(served: ServedBroker) -> Producer:
    await served.create("t")
    producer = await init(served)
    await add(served, producer, {"t": (0,)})
    return producer


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_ends_as_its_producer_says(
    tmp_path: Path, version: int, is_commit: bool
) -> None:
    async with serving_broker(tmp_path) as served:
        producer = await begun(served)
        answer = await end(served, producer, is_commit=is_commit, version=version)
        assert answer.error_code == ErrorCode.NONE
        await until_state(served, "CompleteCommit" if is_commit else "CompleteAbort")
        # The marker.
        assert served.log("t").high_watermark == 1
        # It missed the answer.
        assert await end(served, producer, is_commit=is_commit, version=version) == answer


async def test_since_v5_the_end_raises_the_epoch(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        old = await begun(served)
        answer = await end(served, old, version=5)
        assert (answer.producer_id, answer.producer_epoch) == (old.id, old.epoch + 1)
        await until_state(served, "CompleteCommit")
        assert await add(served, old, {"t": (0,)}) == {("t", 0): ErrorCode.PRODUCER_FENCED}
        new = Producer(answer.producer_id, answer.producer_epoch)
        assert await add(served, new, {"t": (0,)}) == {("t", 0): ErrorCode.NONE}


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
async def test_who_was_replaced_hears_so_in_terms_of_its_version(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        old = await begun(served)
        await init(served)
        assert (await end(served, old, version=version)).error_code == code


async def test_what_was_not_begun_cannot_be_committed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        producer = await init(served)
        assert (await end(served, producer)).error_code == ErrorCode.INVALID_TXN_STATE
