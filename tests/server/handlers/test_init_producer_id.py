"""InitProducerId: always a new id (wire.md G12); no transactions yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.error_codes import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.harness.served_broker import ServedBroker, serving_broker


async def init(served: ServedBroker, version: int = 4, **settings: Any) -> InitProducerIdResponse:
    fields = {"transactional_id": None, "transaction_timeout_ms": 2147483647} | settings
    return await served.call(InitProducerIdRequest(**fields), version, InitProducerIdResponse)


@pytest.mark.parametrize("version", range(5))
async def test_every_producer_gets_an_id_of_its_own(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        answers = [await init(served, version) for _ in range(3)]
    assert {(a.error_code, a.producer_epoch) for a in answers} == {(ErrorCode.NONE, 0)}
    assert len({answer.producer_id for answer in answers}) == 3
    assert min(answer.producer_id for answer in answers) >= 0


@pytest.mark.parametrize("timeout_ms", [-1, 0, 2147483647])
@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (0, 0), (12345, 7)])
async def test_what_only_concerns_transactions_is_not_looked_at(
    tmp_path: Path, timeout_ms: int, producer_id: int, epoch: int
) -> None:
    async with serving_broker(tmp_path) as served:
        first = await init(served)
        answer = await init(
            served,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
    assert answer.error_code == ErrorCode.NONE
    assert answer.producer_id not in (first.producer_id, 12345)
    assert answer.producer_epoch == 0


async def test_no_id_is_given_out_twice_over_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        before = [(await init(served)).producer_id for _ in range(3)]
    async with serving_broker(tmp_path) as served:
        after = [(await init(served)).producer_id for _ in range(3)]
    assert not set(before) & set(after)


@pytest.mark.parametrize("version", range(5))
async def test_a_transactional_id_is_refused_for_good(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        answer = await init(served, version, transactional_id="tx", transaction_timeout_ms=1000)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not ErrorCode(answer.error_code).retriable
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
