"""Why a release cannot be measured with a request or a property."""

from __future__ import annotations

import pytest

from bench.peers.served import Served
from protocol.wire.api_keys import ApiKey

SERVED = Served({ApiKey.HEARTBEAT: (1, 3)}, frozenset({"flush.on.acks.all"}))


@pytest.mark.parametrize(
    ("key", "version", "lack"),
    [
        (ApiKey.HEARTBEAT, 1, None),
        (ApiKey.HEARTBEAT, 3, None),
        (ApiKey.HEARTBEAT, 0, "it serves Heartbeat in versions 1 to 3, not 0"),
        (ApiKey.HEARTBEAT, 4, "it serves Heartbeat in versions 1 to 3, not 4"),
        (ApiKey.END_TXN, 0, "it does not serve EndTxn"),
    ],
)
def test_a_request_is_lacking_outside_the_served_versions(
    key: int, version: int, lack: str | None
) -> None:
    assert SERVED.lack_of_request(key, version) == lack


def test_the_first_property_that_it_does_not_know_is_lacking() -> None:
    known, unknown = "flush.on.acks.all=false", "flush.in.turns=a=b"

    assert SERVED.lack_of_property([]) is None
    assert SERVED.lack_of_property([known]) is None
    assert SERVED.lack_of_property([known, unknown]) == "it does not know flush.in.turns"
