"""UpdateFeatures (key 57) (KIP-584).

Versions: v1 validate only, how a level changes (KIP-778) · v2 no results by feature.
Source: UpdateFeaturesRequest.json, UpdateFeaturesResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class FeatureUpdateKey:
    """The new level of a feature; below 1 the feature is off."""

    feature: str = wire(STRING)
    max_version_level: int = wire(INT16)
    allow_downgrade: bool = wire(BOOL, until=0, default=False)
    upgrade_type: int = wire(INT8, since=1, default=1)
    """1: upgrade only; 2: safe downgrade allowed; 3: any downgrade allowed."""


@wire_class
class UpdateFeaturesRequest(Message):
    """Levels of features: the broker changes all of them or none."""

    api_key = 57
    versions = (0, 2)
    flexible_since = 0

    timeout_ms: int = wire(INT32, default=60000)
    feature_updates: tuple[FeatureUpdateKey, ...] = wire(array(FeatureUpdateKey))
    validate_only: bool = wire(BOOL, since=1, default=False)


@wire_class
class UpdatableFeatureResult:
    """The result for one feature."""

    feature: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)


@wire_class
class UpdateFeaturesResponse(Message):
    """Whether the features now have their new levels."""

    api_key = 57
    versions = (0, 2)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    results: tuple[UpdatableFeatureResult, ...] = wire(
        array(UpdatableFeatureResult), until=1, default=(), ignorable=True
    )
