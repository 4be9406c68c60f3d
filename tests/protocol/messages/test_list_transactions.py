"""ListTransactions: bytes as clients send and expect them."""

from __future__ import annotations

import struct

import pytest

from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


@pytest.mark.parametrize(
    ("version", "rest", "fields"),
    [
        pytest.param(0, b"", {}, id="v0"),
        pytest.param(1, struct.pack(">q", 5), {"duration_filter": 5}, id="v1"),
    ],
)
def test_request(version: int, rest: bytes, fields: dict[str, int]) -> None:
    filters = b"\2\x06Empty" + b"\2" + struct.pack(">q", 1000)
    expected = ListTransactionsRequest(
        state_filters=("Empty",),
        producer_id_filters=(1000,),
        **fields,
    )
    assert decode(ListTransactionsRequest, version, memoryview(filters + rest + b"\0")) == expected


@pytest.mark.parametrize("version", [0, 1])
def test_response(version: int) -> None:
    state = TransactionState(transactional_id="x", producer_id=1000, transaction_state="Empty")
    response = ListTransactionsResponse(
        error_code=0, unknown_state_filters=("Dea",), transaction_states=(state,)
    )
    described = b"\2\2x" + struct.pack(">q", 1000) + b"\x06Empty\0"
    data = b"\0" * 4 + b"\0\0" + b"\2\4Dea" + described + b"\0"
    assert encode(response, version) == [data]
