"""AlterClientQuotas and DescribeClientQuotas: what is set is described, live, and after a restart."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.handlers.alter_client_quotas import CHANGES_MAX
from server.security.audit_log import LOGGER
from tests.harness.served_broker import ServedBroker, serving_broker

Entity = dict[str, str | None]
Values = dict[str, float | None]
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def entry(entity: Entity, values: Values) -> EntryData:
    return EntryData(
        entity=tuple(
            EntityData(entity_type=type_, entity_name=name) for type_, name in entity.items()
        ),
        ops=tuple(
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ),
    )


async def alter(
    served: ServedBroker, *entries: EntryData, validate_only: bool = False, version: int = 1
) -> list[tuple[int, str | None]]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    response = await served.call(request, version, AlterClientQuotasResponse)
    return [(each.error_code, each.error_message) for each in response.entries]


async def describe(
    served: ServedBroker, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=type_, match_type=match_type, match=match)
            for type_, match_type, match in components
        ),
        strict=strict,
    )
    response = await served.call(request, 1, DescribeClientQuotasResponse)
    assert response.entries is not None
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_what_is_set_is_described_and_survives_a_restart(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        done = await alter(
            served,
            entry({"user": "alice"}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
            entry({"ip": "10.0.0.7"}, {"connection_creation_rate": 3.0}),
            version=version,
        )
        assert done == [(0, None), (0, None)]
    async with serving_broker(tmp_path) as served:
        assert await describe(served) == {
            (("user", "alice"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
            (("ip", "10.0.0.7"),): {"connection_creation_rate": 3.0},
        }
        await alter(served, entry({"user": "alice"}, {"producer_byte_rate": None}))
        await alter(served, entry({"ip": "10.0.0.7"}, {"connection_creation_rate": None}))
        assert await describe(served) == {(("user", "alice"),): {"request_percentage": 12.5}}


async def test_a_filter_matches_parts_of_entities(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        entities: list[Entity] = [
            {"user": "alice"},
            {"user": "alice", "client-id": "app"},
            {"user": None},
            {"user": "bob", "client-id": None},
            {"client-id": "app"},
        ]
        await alter(served, *(entry(each, {"request_percentage": 1.0}) for each in entities))

        async def found(*components: tuple[str, int, str | None], strict: bool = False) -> set[int]:
            described = await describe(served, *components, strict=strict)
            return {entities.index(dict(each)) for each in described}

        assert await found(("user", EXACT, "alice")) == {0, 1}
        assert await found(("user", EXACT, "alice"), strict=True) == {0}
        assert await found(("user", DEFAULT, None)) == {2}
        assert await found(("user", SPECIFIED, None)) == {0, 1, 2, 3}
        assert await found(("user", SPECIFIED, None), ("client-id", SPECIFIED, None)) == {1, 3}
        assert await found(("client-id", EXACT, "app"), strict=True) == {4}
        assert await found(strict=True) == set()
        assert await found() == {0, 1, 2, 3, 4}


async def test_validate_only_checks_and_changes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        done = await alter(
            served,
            entry({"user": "alice"}, {"producer_byte_rate": 1.0}),
            entry({"user": "bob"}, {"producer_byte_rate": -1.0}),
            validate_only=True,
        )
        assert done == [(0, None), (42, "Quota producer_byte_rate must be greater than 0")]
        assert await describe(served) == {}


async def test_a_refused_entity_keeps_its_quotas_and_the_others_change(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await alter(served, entry({"user": "alice"}, {"producer_byte_rate": 1.0}))
        done = await alter(
            served,
            entry({"user": "alice"}, {"consumer_byte_rate": 2.0, "speed": 1.0}),
            entry({"user": "bob"}, {"producer_byte_rate": 3.0}),
        )
        assert done == [(42, "Invalid configuration key speed"), (0, None)]
        assert await describe(served) == {
            (("user", "alice"),): {"producer_byte_rate": 1.0},
            (("user", "bob"),): {"producer_byte_rate": 3.0},
        }


async def test_an_entity_or_a_quota_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    op = OpData(key="request_percentage", value=1.0, remove=False)
    bob = (EntityData(entity_type="user", entity_name="bob"),)
    async with serving_broker(tmp_path) as served:
        done = await alter(
            served,
            entry({"user": "alice"}, {"producer_byte_rate": 1.0}),
            entry({"user": "alice"}, {"producer_byte_rate": 2.0}),
            EntryData(entity=bob, ops=(op, op)),
        )
        assert done == [
            (42, "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"),
            (
                42,
                "Duplicate quota key request_percentage not updating quota for this entity"
                " ClientQuotaEntity(entries={user=bob})",
            ),
        ]
        assert await describe(served) == {}


async def test_a_request_with_too_many_changes_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        many = [
            entry({"user": f"u{number}"}, {"request_percentage": 1.0})
            for number in range(CHANGES_MAX + 1)
        ]
        done = await alter(served, *many)
        text = "Unable to perform excessively large batch operation."
        assert set(done) == {(ErrorCode.POLICY_VIOLATION, text)}
        assert await describe(served) == {}
        assert set(await alter(served, *many[1:])) == {(0, None)}
        assert len(await describe(served)) == CHANGES_MAX


async def test_a_change_is_in_the_audit_log_without_its_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        async with serving_broker(tmp_path) as served:
            await alter(
                served,
                entry({"user": "alice", "client-id": None}, {"producer_byte_rate": 1024.0}),
                entry({"team": "x"}, {"request_percentage": 1.0}),
            )
    (line,) = [json.loads(each.message) for each in caplog.records if each.name == LOGGER]
    assert line["api"] == "AlterClientQuotas"
    assert line["results"] == [
        {
            "resource": "Quota:user=alice,client-id=<default>",
            "result": "NONE",
            "properties": ["producer_byte_rate"],
        },
        {
            "resource": "Quota:team=x",
            "result": "INVALID_REQUEST",
            "properties": ["request_percentage"],
        },
    ]
