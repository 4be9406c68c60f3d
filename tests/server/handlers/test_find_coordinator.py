"""FindCoordinator: every key is answered, with an error that no client retries."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.error_codes import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", range(4))
async def test_a_group_has_no_coordinator(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        request = FindCoordinatorRequest(key="group")
        response = await served.call(request, version, FindCoordinatorResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not ErrorCode(response.error_code).retriable
    assert response.node_id == -1
    if version >= 1:
        assert "onsumer groups are not served" in (response.error_message or "")


@pytest.mark.parametrize("version", range(4, 7))
@pytest.mark.parametrize(
    ("key_type", "text"), [(0, "onsumer groups"), (1, "ransactions"), (2, "no coordinators")]
)
async def test_every_key_is_answered(
    tmp_path: Path, version: int, key_type: int, text: str
) -> None:
    async with serving_broker(tmp_path) as served:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=("a", "b"))
        response = await served.call(request, version, FindCoordinatorResponse)
    assert [coordinator.key for coordinator in response.coordinators] == ["a", "b"]
    for coordinator in response.coordinators:
        assert coordinator.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert text in (coordinator.error_message or "")
