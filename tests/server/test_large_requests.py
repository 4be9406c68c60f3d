"""Whatever a request names, and however often, it holds the loop for no more than a moment.

Generated from the table of APIs: each array of each request, with elements that are all the same
and exist, and with elements that all differ and do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from protocol.api_keys import APIS, ApiKey
from tests.harness.large_requests import ATTACKED, LargeRequest, array_paths, large_request
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker
from tests.harness.watched_broker import WatchedBroker, watched_broker

ELEMENTS = int(os.environ.get("KOMPAKT_LARGE_ELEMENTS", "20000"))
TURN_SECONDS_MAX = 0.050
"""Of the loop's processor time. A slice is 2 ms; what a test machine's caches and the collector of
the interpreter add is far below the rest."""

TRIES = 3
"""What the request itself costs, it costs each time. The rest is the machine's, or is compiled once."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with watched_broker(tmp_path_factory.mktemp("broker")) as watched:

        async def prepare(served: ServedBroker) -> None:
            await served.create(ATTACKED, partitions=2)
            await served.produce(ATTACKED)

        watched.run(prepare)
        yield watched


CASES = [
    pytest.param(api.key, path, kind, id=f"{api.name}-{'.'.join(path)}-{kind}")
    for api in APIS.values()
    for path in array_paths(api.request_type, api.version_max)
    for kind in ("same", "distinct")
]


async def answer_to(broker: WatchedBroker, request: LargeRequest) -> int | None:
    """The bytes of its answer; None if the broker answered by closing the connection."""
    async with await RawClient.connect(broker.host, broker.port, limit=1 << 28) as client:
        client.send_frame(request.frame)
        try:
            return len(await client.receive_frame())
        except (ConnectionError, EOFError):
            return None


@pytest.mark.parametrize(("key", "path", "kind"), CASES)
async def test_no_turn_of_the_loop_is_long(
    broker: WatchedBroker, key: ApiKey, path: tuple[str, ...], kind: str
) -> None:
    request = large_request(APIS[key], path, kind, ELEMENTS)
    await answer_to(broker, large_request(APIS[key], path, kind, 1))  # compiles its codec

    turns = []
    for _ in range(TRIES):
        with broker.longest_turn() as longest:
            size = await answer_to(broker, request)
        assert size is not None, "the broker closed the connection"
        turns.append(longest())
        if turns[-1] <= TURN_SECONDS_MAX:
            break

    assert min(turns) <= TURN_SECONDS_MAX
