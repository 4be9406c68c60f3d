"""No request holds the loop while its permissions are decided, however many resources it names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.wire.api_keys import APIS, ApiKey
from server.config.authorization_config import AUTHORIZERS
from server.security.api_rules import API_RULES, Scope
from tests.harness.large_requests import ATTACKED, array_paths, large_request
from tests.harness.served_broker import ServedBroker
from tests.harness.watched_broker import WatchedBroker, watched_broker
from tests.server.test_large_requests import (
    ELEMENTS,
    TRIES,
    TURN_SECONDS_MAX,
    answer_to,
)

CASES = [
    pytest.param(key, path, id=f"{APIS[key].name}-{'.'.join(path)}")
    for key, rules in API_RULES.items()
    if any(rule.scope is not Scope.REQUEST for rule in rules)
    for path in array_paths(APIS[key].request_type, APIS[key].version_max)
]


@pytest.fixture(scope="module", params=["false", "true"], ids=["denied", "allowed"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WatchedBroker]:
    """A broker without ACLs, where nothing or everything is allowed."""
    properties = {
        "authorizer_class_name": AUTHORIZERS[0],
        "allow_everyone_if_no_acl_found": request.param,
    }
    with watched_broker(tmp_path_factory.mktemp("broker"), **properties) as watched:

        async def prepare(served: ServedBroker) -> None:
            await served.create(ATTACKED, partitions=2)

        watched.run(prepare)
        yield watched


@pytest.mark.parametrize(("key", "path"), CASES)
async def test_no_turn_of_the_loop_is_long(
    broker: WatchedBroker, key: ApiKey, path: tuple[str, ...]
) -> None:
    request = large_request(APIS[key], path, "distinct", ELEMENTS)
    await answer_to(broker, large_request(APIS[key], path, "distinct", 1))
    turns = []
    for _ in range(TRIES):
        with broker.longest_turn() as longest:
            assert await answer_to(broker, request) is not None, "the broker closed the connection"
        turns.append(longest())
        if turns[-1] <= TURN_SECONDS_MAX:
            break
    assert min(turns) <= TURN_SECONDS_MAX
