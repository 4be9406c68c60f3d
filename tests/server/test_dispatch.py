"""The check of API versions, and failures of handlers."""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceResponse
from protocol.wire.api_keys import APIS
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    InvalidRecord,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.wire.schema import Message
from server.handlers import list_offsets
from server.request_context import error_code_of
from storage.files.errors import DirectoryOffline
from storage.formats.config_property import ConfigError
from tests.harness.raw_client import decode_response, encode_request
from tests.harness.served_broker import batch_of, produce_request, serving_broker

SIMPLE = (
    DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    ),
    ApiVersionsRequest(client_software_name="raw", client_software_version="1"),
    MetadataRequest(topics=None, allow_auto_topic_creation=False),
    ListGroupsRequest(),
)
REQUEST = ListOffsetsRequest(
    replica_id=-1,
    topics=(
        ListOffsetsTopic(
            name="orders", partitions=(ListOffsetsPartition(partition_index=3, timestamp=-1),)
        ),
    ),
)


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(header(999, 0), id="unknown_key"),
        pytest.param(header(-1, 0), id="negative_key"),
        pytest.param(header(1, 99), id="unknown_version"),
        pytest.param(header(1, -1), id="negative_version"),
        pytest.param(header(0, 2), id="produce_that_is_advertised_only"),
        pytest.param(header(3, 1) + b"\0\0", id="truncated_body"),
        pytest.param(b"\0\3", id="truncated_header"),
        pytest.param(b"", id="empty_frame"),
    ],
)
async def test_what_is_not_a_served_request_closes_its_connection_only(
    tmp_path: Path, frame: bytes
) -> None:
    async with serving_broker(tmp_path) as served:
        other, client = await served.connect(), await served.connect()
        client.send_frame(frame)

        assert await client.is_closed()
        await other.call(REQUEST, 7, ListOffsetsResponse)
        assert served.broker.probe.listeners["PLAINTEXT"].protocol_errors == 1


@pytest.mark.parametrize("version", range(1, 8))
async def test_an_unexpected_exception_is_answered_and_logged(
    tmp_path: Path,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(list_offsets, "handle", fail)
    async with serving_broker(tmp_path) as served:
        response = await served.call(REQUEST, version, ListOffsetsResponse)

    ((partition,),) = [topic.partitions for topic in response.topics]
    assert partition.partition_index == 3
    assert partition.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a mistake of ours" in caplog.text
    assert "Traceback" in caplog.text


async def test_requests_are_timed_by_api(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.call(produce_request("orders", batch_of(1)), 9, ProduceResponse)
        assert list(served.broker.probe.requests) == ["Produce"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptBatch("crc"), ErrorCode.CORRUPT_MESSAGE),
        (InvalidRecord("no key", 3), ErrorCode.INVALID_RECORD),
        (UnsupportedMagic(1), ErrorCode.INVALID_RECORD),
        (UnsupportedCodec(7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (DecompressionTooLarge(1), ErrorCode.MESSAGE_TOO_LARGE),
        (ConfigError("x"), ErrorCode.INVALID_CONFIG),
        (DirectoryOffline("/data", "EIO"), ErrorCode.KAFKA_STORAGE_ERROR),
        (KeyError("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_kind_of_exception_has_its_error_code(error: Exception, code: ErrorCode) -> None:
    assert error_code_of(error) is code


def test_every_api_has_a_handler_that_can_answer_and_refuse() -> None:
    for api in APIS.values():
        module = __import__(f"server.handlers.{api.key.name.lower()}", fromlist=["handle"])
        assert callable(module.handle)
        assert callable(module.refuse)


@pytest.mark.parametrize("request_", SIMPLE, ids=lambda each: type(each).__name__)
async def test_bytes_behind_a_requests_end_are_ignored_and_told_once(
    tmp_path: Path, request_: Message, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka 4.3.1 accepts it, too: a Go client sends one byte too many in DescribeAcls."""
    caplog.set_level(logging.DEBUG, "server.dispatch")
    api = APIS[request_.api_key]
    version = api.version_max
    async with serving_broker(tmp_path) as served:
        client = await served.connect()
        for surplus in (b"\0", b"\xff" * 5, b"x" * 100_000):
            client.send_frame(encode_request(request_, version, 7) + surplus)
            answer = decode_response(await client.receive_frame(), api.response_type, version)
            assert isinstance(answer, api.response_type)
    told = [each.message for each in caplog.records if each.name == "server.dispatch"]
    assert len(told) == 1
    assert f"{api.name} v{version} has 1 byte after its last field" in told[0]
