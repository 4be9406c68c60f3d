"""UpdateFeatures: all levels change or none. Codes and messages are Kafka 4.3.1's."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

UP, SAFE_DOWN, UNSAFE_DOWN = 1, 2, 3
GROUP, SPARSE, TRANSACTION = "group.version", "sparse.log", "transaction.version"
FAILED = "The update failed for all features since the following feature had an error: "
NOT_ALLOWED = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
    " unsafe downgrade."
)

Update = tuple[str, int, int]


async def update(
    served: ServedBroker, *updates: Update, version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level, upgrade_type in updates
        ),
        validate_only=validate_only,
    )
    return await served.call(request, version, UpdateFeaturesResponse)


async def finalized(served: ServedBroker) -> tuple[int, dict[str, int]]:
    """What clients learn: the epoch, and the levels by feature."""
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    response = await served.call(request, 4, ApiVersionsResponse)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return response.finalized_features_epoch, levels


@pytest.mark.parametrize("version", [1, 2])
async def test_a_level_that_holds_already_is_confirmed(tmp_path: Path, version: int) -> None:
    updates = [(GROUP, 1, each) for each in (UP, SAFE_DOWN, UNSAFE_DOWN)]
    async with serving_broker(tmp_path) as served:
        before = await finalized(served)
        response = await update(served, *updates, version=version)
        assert await finalized(served) == before
    each = UpdatableFeatureResult(feature=GROUP, error_code=0, error_message="NONE")
    results = (each,) * 3 if version == 1 else ()
    assert response == UpdateFeaturesResponse(error_code=0, error_message=None, results=results)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("no.such", 1, UP), "Local controller 1 does not support this feature."),
        (("", 1, UP), "Local controller 1 does not support this feature."),
        (("metadata.version", 30, UP), "Local controller 1 does not support this feature."),
        (("no.such", 0, SAFE_DOWN), "Feature no.such not found."),
        ((GROUP, 2, UP), "Local controller 1 only supports versions 0-1"),
        ((GROUP, 5, SAFE_DOWN), "Local controller 1 only supports versions 0-1"),
        ((GROUP, -1, SAFE_DOWN), "A feature version cannot be less than 0."),
        ((GROUP, 0, UP), NOT_ALLOWED),
        ((TRANSACTION, 1, UP), NOT_ALLOWED),
        ((GROUP, 1, 0), "The controller does not support the given upgrade type."),
        ((GROUP, 1, 9), "The controller does not support the given upgrade type."),
    ],
    ids=str,
)
async def test_one_fault_refuses_all(tmp_path: Path, asked: Update, why: str) -> None:
    async with serving_broker(tmp_path) as served:
        before = await finalized(served)
        response = await update(served, (TRANSACTION, 1, SAFE_DOWN), asked)
        assert await finalized(served) == before
    name, level, _ = asked
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message == (
        f"{FAILED}Invalid update version {level} for feature {name}. {why}"
    )


@pytest.mark.parametrize("upgrade_type", [SAFE_DOWN, UNSAFE_DOWN])
async def test_clients_learn_of_a_lower_level_over_restarts_too(
    tmp_path: Path, upgrade_type: int
) -> None:
    async with serving_broker(tmp_path) as served:
        epoch, _ = await finalized(served)
        response = await update(served, (TRANSACTION, 1, upgrade_type))
        assert (response.error_code, response.error_message) == (0, None)
        lowered = await finalized(served)
    async with serving_broker(tmp_path) as served:
        assert await finalized(served) == lowered
        await update(served, (TRANSACTION, 2, UP))
        raised = await finalized(served)
    assert (lowered[1], raised[1]) == (
        {GROUP: 1, SPARSE: 1, TRANSACTION: 1},
        {GROUP: 1, SPARSE: 1, TRANSACTION: 2},
    )
    assert epoch < lowered[0] < raised[0]


@pytest.mark.parametrize("allow_downgrade", [False, True])
async def test_version_0_says_by_a_flag_that_a_level_may_fall(
    tmp_path: Path, allow_downgrade: bool
) -> None:
    asked = FeatureUpdateKey(
        feature=TRANSACTION, max_version_level=1, allow_downgrade=allow_downgrade
    )
    request = UpdateFeaturesRequest(feature_updates=(asked,))
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, 0, UpdateFeaturesResponse)
        _, levels = await finalized(served)
    refused = ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_code == (ErrorCode.NONE if allow_downgrade else refused)
    assert levels[TRANSACTION] == (1 if allow_downgrade else 2)


async def test_what_is_only_validated_changes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        before = await finalized(served)
        response = await update(served, (GROUP, 0, SAFE_DOWN), validate_only=True)
        assert response.error_code == ErrorCode.NONE
        assert await finalized(served) == before


async def test_without_the_group_version_the_consumer_protocol_is_refused(tmp_path: Path) -> None:
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    question = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
    async with serving_broker(tmp_path) as served:
        await update(served, (GROUP, 0, SAFE_DOWN))
        assert GROUP not in (await finalized(served))[1]
        beaten = await served.call(beat, 1, ConsumerGroupHeartbeatResponse)
        described = await served.call(question, 1, ConsumerGroupDescribeResponse)
    assert beaten.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [each.error_code for each in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]
