"""UpdateFeatures (key 57), v0-v2.

Behaviour: changes all features or none. A level that this release does not support, or a downgrade that
the client does not allow, gets INVALID_UPDATE_VERSION with Kafka's message. Clients use a new level once
they send ApiVersions again.
Versions: v1 validate_only, upgrade_type · v2 no results by feature.
Source: KIP-584, KIP-778; Apache Kafka, FeatureControlManager.java, ControllerApis.scala.
"""

from __future__ import annotations

from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.metadata.features import FeatureUpdate, UpgradeType, fault_of_update
from server.request_context import RequestContext

UPGRADE_TYPE_SINCE = 1
RESULTS_UNTIL = 1
DONE = "NONE"
"""Kafka's message for each changed feature."""


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Change the levels if all updates are valid."""
    features, controller_id = context.broker.features, context.broker.node.controller_id
    version = context.header.api_version
    changed: dict[str, int] = {}
    async for asked in context.pace.paced(request.feature_updates):
        update = _update(asked, version)
        fault = fault_of_update(update, features.levels, controller_id)
        if fault is not None:
            text = (
                "The update failed for all features since the following feature had an error:"
                f" {fault}"
            )
            return refuse(request, context, ErrorCode.INVALID_UPDATE_VERSION, text)
        changed[update.name] = update.level
    if not request.validate_only:
        await features.set_levels(changed)
    results = [
        UpdatableFeatureResult(feature=asked.feature, error_code=ErrorCode.NONE, error_message=DONE)
        async for asked in context.pace.paced(request.feature_updates)
        if version <= RESULTS_UNTIL
    ]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE, error_message=None, results=tuple(results)
    )


def refuse(
    request: UpdateFeaturesRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error_code, error_message=message)


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade_type = asked.upgrade_type
    if version < UPGRADE_TYPE_SINCE and asked.allow_downgrade:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE
    return FeatureUpdate(
        name=asked.feature, level=asked.max_version_level, upgrade_type=upgrade_type
    )
