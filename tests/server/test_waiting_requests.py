"""A request that only waits has used none of its slice of the loop: it queues behind no long work."""

from __future__ import annotations

import asyncio
import traceback
from functools import partial
from pathlib import Path

import pytest

from protocol.wire.api_keys import APIS, ApiKey
from server import dispatch
from server.runtime.turns import Pace
from server.security.api_rules import API_RULES
from tests.harness.authorization_requests import request_for
from tests.harness.authorization_world import World
from tests.harness.authorized_broker import SUPER, authorizing_broker, connect_as


class TurnClock:
    """A clock that moves a second with each turn of the loop, and stands still within one."""

    def __init__(self) -> None:
        self._turns = 0
        self._loop = asyncio.get_running_loop()
        self._tick()

    def __call__(self) -> float:
        return float(self._turns)

    def _tick(self) -> None:
        self._turns += 1
        self._loop.call_soon(self._tick)


GUARDED = [key for key in ApiKey if API_RULES[key]]


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where requests found their slice used up, and waited for another one."""
    found: list[str] = []
    rest = Pace.rest

    async def noting_rest(pace: Pace) -> None:
        if isinstance(pace._clock, TurnClock):  # not that of a connection
            found.append("".join(traceback.format_stack(limit=6)))
        await rest(pace)

    monkeypatch.setattr(Pace, "rest", noting_rest)
    return found


@pytest.mark.parametrize("key", GUARDED, ids=[APIS[key].name for key in GUARDED])
async def test_a_small_request_that_waits_takes_no_second_slice(
    key: ApiKey, rested: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"group_initial_rebalance_delay_ms": "0", "node_id": "1"}
    async with authorizing_broker(tmp_path, **properties) as served:
        client, admin = await served.connect(), await connect_as(served, SUPER)
        world = World(served, client, admin)
        await world.prepare()
        for kind in dict.fromkeys(rule.kind for rule in API_RULES[key]):
            scene = await world.scene(key)
            request = request_for(key, kind.name)(scene, APIS[key].version_max)
            with monkeypatch.context() as patched:
                patched.setattr(dispatch, "Pace", partial(Pace, clock=TurnClock()))
                await admin.call(request, APIS[key].version_max, APIS[key].response_type)
    assert not rested, rested[0]
