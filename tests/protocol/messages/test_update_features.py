"""UpdateFeatures: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0_and_v1() -> None:
    beginning = b"\0\0\x03\xe8" + b"\2" + b"\2f" + b"\0\2"
    asked = FeatureUpdateKey(feature="f", max_version_level=2, allow_downgrade=True)
    request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=(asked,))
    frame = memoryview(beginning + b"\1" + b"\0" + b"\0")
    assert decode(UpdateFeaturesRequest, 0, frame) == request

    asked = FeatureUpdateKey(feature="f", max_version_level=2, upgrade_type=3)
    request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=(asked,), validate_only=True)
    frame = memoryview(beginning + b"\3" + b"\0" + b"\1" + b"\0")
    assert decode(UpdateFeaturesRequest, 1, frame) == request


def test_response_v1_and_v2() -> None:
    result = UpdatableFeatureResult(feature="f", error_code=0, error_message="NONE")
    response = UpdateFeaturesResponse(error_code=0, error_message=None, results=(result,))
    beginning = b"\0\0\0\0" + b"\0\0" + b"\0"
    (part,) = encode(response, 1)
    assert part == beginning + b"\2" + b"\2f" + b"\0\0" + b"\5NONE" + b"\0" + b"\0"
    (part,) = encode(response, 2)
    assert part == beginning + b"\0"
