"""ListTransactions: what the filters let through, and never a list that is not whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.transaction_requests import add, init


async def listed(
    served: ServedBroker, version: int = 1, **filters: Any
) -> ListTransactionsResponse:
    request = ListTransactionsRequest(**{"state_filters": (), "producer_id_filters": ()} | filters)
    return await served.call(request, version, ListTransactionsResponse)


async def two_ids(served: ServedBroker) -> int:
    """ "tx" with a transaction, whose producer id is returned, and "idle"."""
    await served.create("t")
    producer = await init(served)
    await add(served, producer, {"t": (0,)})
    idle = InitProducerIdRequest(transactional_id="idle", transaction_timeout_ms=1_000)
    await served.call(idle, 4, InitProducerIdResponse)
    return producer.id


@pytest.mark.parametrize("version", [0, 1])
async def test_every_transactional_id_is_listed(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        producer_id = await two_ids(served)
        answer = await listed(served, version)
    assert answer.error_code == ErrorCode.NONE
    found = {each.transactional_id: each for each in answer.transaction_states}
    assert found.keys() == {"tx", "idle"}
    assert (found["tx"].producer_id, found["tx"].transaction_state) == (producer_id, "Ongoing")
    assert found["idle"].transaction_state == "Empty"


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        pytest.param({"state_filters": ("Ongoing",)}, ["tx"], id="state"),
        pytest.param({"state_filters": ("Ongoing", "Empty")}, ["idle", "tx"], id="states"),
        pytest.param({"producer_id_filters": (-7,)}, [], id="producer_id"),
        pytest.param({"duration_filter": 3_600_000}, [], id="long"),
    ],
)
async def test_filters_let_through_what_fits(
    tmp_path: Path, filters: dict[str, Any], ids: list[str]
) -> None:
    async with serving_broker(tmp_path) as served:
        await two_ids(served)
        answer = await listed(served, **filters)
    assert sorted(each.transactional_id for each in answer.transaction_states) == ids
    assert answer.unknown_state_filters == ()


async def test_a_filter_that_names_no_state_is_told(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await two_ids(served)
        answer = await listed(served, state_filters=("ongoing",))
    assert answer.unknown_state_filters == ("ongoing",)
    assert answer.transaction_states == ()


async def test_no_list_is_given_while_some_are_still_being_read(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await two_ids(served)
        served.broker.transactions.table.loads._loading.add(0)
        assert (await listed(served)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
