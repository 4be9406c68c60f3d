"""InitProducerId: always a new id, unless it is for a transactional id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.wire.error_codes import ErrorCode
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


async def init_transactional(
    served: ServedBroker, version: int = 5, **settings: Any
) -> InitProducerIdResponse:
    fields = {"transactional_id": "tx", "transaction_timeout_ms": 60_000} | settings
    return await init(served, version, **fields)


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_keeps_its_producer_id_and_fences_by_epochs(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        answers = [await init_transactional(served, version) for _ in range(2)]
        other = await init_transactional(served, version, transactional_id="other")
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(0, 0), (0, 1)]
    assert answers[0].producer_id == answers[1].producer_id != other.producer_id


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)],
)
async def test_who_was_replaced_hears_so_in_terms_of_its_version(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        first = await init_transactional(served)
        await init_transactional(served)
        answer = await init_transactional(
            served, version, producer_id=first.producer_id, producer_epoch=first.producer_epoch
        )
    assert answer.error_code == code
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        pytest.param({"transactional_id": ""}, ErrorCode.INVALID_REQUEST, id="empty_id"),
        pytest.param({"producer_id": 7}, ErrorCode.INVALID_REQUEST, id="no_epoch"),
        pytest.param({"producer_epoch": 7}, ErrorCode.INVALID_REQUEST, id="no_producer_id"),
        pytest.param(
            {"transaction_timeout_ms": 900_001},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            id="timeout_above_the_bound",
        ),
        pytest.param(
            {"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT, id="no_timeout"
        ),
    ],
)
async def test_what_cannot_be_is_refused_and_changes_nothing(
    tmp_path: Path, settings: dict[str, Any], code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        answer = await init_transactional(served, **settings)
        assert served.broker.transactions.transactions() == []
    assert answer.error_code == code
