"""ApiVersions: the table, its versions, and a request in a version that the broker does not know."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.wire.api_keys import APIS, INTERNAL_APIS
from protocol.wire.error_codes import ErrorCode
from tests.harness.raw_client import decode_response
from tests.harness.served_broker import serving_broker

SERVED = {int(api.key): (api.version_min, api.version_max) for api in APIS.values()}
ADVERTISED = {key: versions for key, versions in SERVED.items() if key not in INTERNAL_APIS}
"""The numbers themselves are held by tests/protocol/wire/test_api_keys.py."""


def table(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


@pytest.mark.parametrize("version", range(5))
async def test_exactly_what_is_served_is_advertised(tmp_path: Path, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, ApiVersionsResponse)

    assert response.error_code == ErrorCode.NONE
    assert table(response) == ADVERTISED
    assert response.throttle_time_ms == 0
    features = [
        (each.name, each.min_version, each.max_version) for each in response.supported_features
    ]
    told = [("group.version", 0, 1), ("sparse.log", 0, 1), ("transaction.version", 0, 2)]
    assert features == (told if version >= 4 else [])
    finalized = [(each.name, each.max_version_level) for each in response.finalized_features]
    levels = [("group.version", 1), ("sparse.log", 1), ("transaction.version", 2)]
    assert finalized == (levels if version >= 3 else [])


async def test_the_internal_listener_also_advertises_what_followers_send(tmp_path: Path) -> None:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter_broker_listener_name": "INTERNAL",
    }
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
    async with serving_broker(tmp_path, **properties) as served:
        inside = await (await served.connect("INTERNAL")).call(request, 4, ApiVersionsResponse)
        outside = await served.call(request, 4, ApiVersionsResponse)

    assert table(inside) == SERVED
    assert table(outside) == ADVERTISED


async def test_an_unknown_version_is_answered_in_version_0_with_the_table(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        client = await served.connect()
        client.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0\xff what no decoder knows")

        frame = await client.receive_frame()
        response = decode_response(frame, ApiVersionsResponse, 0)
        assert frame[:4] == struct.pack(">i", 7)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert table(response) == ADVERTISED

        again = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        assert (await client.call(again, 3, ApiVersionsResponse)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "version"),
    [
        pytest.param("", "1.0", id="no_name"),
        pytest.param("raw", "", id="no_version"),
        pytest.param("-raw", "1.0", id="leading_dash"),
        pytest.param("raw client", "1.0", id="space"),
        pytest.param("raw", "1.0\n", id="newline"),
    ],
)
async def test_a_client_that_does_not_name_itself_properly_is_told(
    tmp_path: Path, name: str, version: str
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, 3, ApiVersionsResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST
