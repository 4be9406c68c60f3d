"""The table of what a fenced broker serves: every API has a decision, and it is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from server.standby.fenced_apis import OF_CONTROLLERS, REFUSED, SERVED
from tests.harness.authorization_requests import REQUESTS, Scene, request_for
from tests.harness.authorization_world import World, state_of, values_in
from tests.harness.fencing import BY, INTERNAL, fence
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import serving_broker

CODES = {int(code) for code in ErrorCode}
NO_REQUEST = {
    # Before a login, or for clients that have none.
    ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS,
    # Not supported: fenced or not, every request is refused.
    ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    # Needs no permission, so that the harness has no request of it.
    ApiKey.DESCRIBE_CLUSTER,
}  # fmt: skip
OF_THIS_BROKER = {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
VERSIONS = [
    (key, version)
    for key in REQUESTS
    for version in sorted({APIS[key].served_min, APIS[key].version_max})
]


def test_every_api_is_either_served_or_refused() -> None:
    """A new API must be decided: it is served only if it reads."""
    assert not SERVED & REFUSED.keys()
    assert SERVED | REFUSED.keys() == set(ApiKey) == set(APIS)


def test_every_api_without_a_request_here_is_named() -> None:
    assert set(ApiKey) - REQUESTS.keys() == NO_REQUEST


def test_clients_retry_every_refusal() -> None:
    assert all(code.retriable for code in REFUSED.values())


def codes_in(answer: Message) -> set[int]:
    return {
        int(value)  # type: ignore[call-overload]
        for path, value in values_in(answer)
        if path.endswith("error_code") and "config_error" not in path and value
    }


def texts_in(answer: Message) -> set[object]:
    return {value for path, value in values_in(answer) if path.endswith("error_message") and value}


async def test_what_reads_is_served_and_all_else_is_refused_and_changes_nothing(
    tmp_path: Path,
) -> None:
    """A request of every API, oldest and newest version, that a serving broker would carry out."""
    settings = INTERNAL | {"group_initial_rebalance_delay_ms": "0", "node_id": "1"}
    async with serving_broker(tmp_path, **settings) as served:
        world = World(served, await served.connect(), await served.connect())
        await world.prepare()
        scenes = {case: await world.scene(case[0]) for case in VERSIONS}
        await fence(served)
        client = await served.connect("INTERNAL")
        before = state_of(served)
        wrong = [
            fault
            for (key, version), scene in scenes.items()
            if (fault := await fault_of(client, key, version, scene))
        ]

        assert not wrong
        assert state_of(served) == before


async def fault_of(client: RawClient, key: ApiKey, version: int, scene: Scene) -> str | None:
    """Returns what is wrong with the answer to a request; None if it is what the table says."""
    request = request_for(key, "")(scene, version)
    answer = await client.call(request, version, APIS[key].response_type)
    name, codes, texts = f"{APIS[key].name} v{version}", codes_in(answer), texts_in(answer)
    if key in OF_THIS_BROKER:
        expected = {int(OF_CONTROLLERS)}
    elif key in REFUSED:
        expected = {int(REFUSED[key])}
    else:
        refused = codes & {int(each) for each in REFUSED.values()}
        return f"{name}: {refused}" if refused else None
    if codes != expected:
        return f"{name}: {codes} instead of {expected}"
    wrong_texts = {each for each in texts if BY not in str(each)}
    return f"{name}: {wrong_texts}" if wrong_texts else None


@pytest.mark.parametrize("key", sorted(OF_THIS_BROKER))
async def test_only_the_changes_of_its_own_properties_are_served(
    tmp_path: Path, key: ApiKey
) -> None:
    settings = INTERNAL | {"node_id": "1"}
    async with serving_broker(tmp_path, **settings) as served:
        await served.create("orders")
        await fence(served)
        client = await served.connect("INTERNAL")

        request = request_for(key, "")(Scene(served.broker.topics.all()[0].id, -1, -1), 1)
        answer = await client.call(request, 1, APIS[key].response_type)

        found = {
            (each.resource_type, each.error_code)
            for each in answer.responses  # type: ignore[attr-defined]
        }
        refused = {(kind, ErrorCode.NOT_CONTROLLER) for kind in (2, 8, 32)}
        assert found == {(4, ErrorCode.NONE)} | refused
        assert served.broker.configs.own["broker.fenced.by"] == BY
