"""DescribeClientQuotas: there are none; an unsound filter gets Kafka's refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Component = tuple[str, int, str | None]


async def ask(
    directory: Path, *components: Component, version: int = 1
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=name, match_type=match_type, match=match)
            for name, match_type, match in components
        ),
        strict=False,
    )
    async with serving_broker(directory) as served:
        return await served.call(request, version, DescribeClientQuotasResponse)


@pytest.mark.parametrize("version", [0, 1])
async def test_no_entity_has_a_quota(tmp_path: Path, version: int) -> None:
    response = await ask(
        tmp_path, ("user", EXACT, "alice"), ("client-id", DEFAULT, None), version=version
    )
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert response.entries == ()


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("team", SPECIFIED, None)], 35, "Unsupported entity type team"),
        ([("", SPECIFIED, None)], 42, "Invalid empty entity type."),
        (
            [("user", SPECIFIED, None)] * 2,
            42,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("ip", SPECIFIED, None), ("user", SPECIFIED, None)],
            42,
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component.",
        ),
        (
            [("user", EXACT, None)],
            42,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", SPECIFIED, "x")],
            42,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 9, None)], 42, "Unknown match type 9"),
    ],
    ids=["type", "empty", "twice", "ip", "no_match", "match", "match_type"],
)
async def test_an_unsound_filter_is_refused(
    tmp_path: Path, components: list[Component], code: int, message: str
) -> None:
    response = await ask(tmp_path, *components)
    assert (response.error_code, response.error_message) == (code, message)
    assert response.entries is None
