"""ApiVersions: the first exchange on every connection."""

from __future__ import annotations

import pytest

from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

RESPONSE = ApiVersionsResponse(
    error_code=0, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),)
)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_requests_before_v3_are_empty(version: int) -> None:
    assert decode(ApiVersionsRequest, version, memoryview(b"")) == ApiVersionsRequest()


def test_request_v3_names_the_software() -> None:
    assert decode(ApiVersionsRequest, 3, memoryview(b"\2n\2v\0")) == ApiVersionsRequest(
        client_software_name="n", client_software_version="v"
    )


def test_response_in_each_encoding() -> None:
    assert encode(RESPONSE, 0) == [b"\0\0" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"]
    assert encode(RESPONSE, 2) == [b"\0\0" + b"\0\0\0\1" + b"\0\x12\0\0\0\4" + b"\0\0\0\0"]
    assert encode(RESPONSE, 3) == [b"\0\0" + b"\2" + b"\0\x12\0\0\0\4\0" + b"\0\0\0\0" + b"\0"]


def test_features_are_tagged_fields_in_the_order_of_their_tags() -> None:
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=(),
        supported_features=(SupportedFeatureKey(name="f", min_version=0, max_version=2),),
        finalized_features_epoch=7,
        finalized_features=(
            FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1),
        ),
        zk_migration_ready=True,
    )
    assert encode(response, 4) == [
        b"\0\0\1\0\0\0\0"
        + b"\4"
        + b"\0\x08\2\2f\0\0\0\2\0"
        + b"\1\x08\0\0\0\0\0\0\0\7"
        + b"\2\x08\2\2f\0\2\0\1\0"
        + b"\3\1\1"
    ]
    assert decode(ApiVersionsResponse, 4, memoryview(encode(response, 4)[0])) == response  # type: ignore[arg-type]
