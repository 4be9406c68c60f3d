"""DeleteTopics: by name up to v5, by name or id from v6 on."""

from __future__ import annotations

import struct
import uuid

import pytest

from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.errors import EncodeError

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_request_v1() -> None:
    data = struct.pack(">ih1si", 1, 1, b"t", 1000)
    assert decode(DeleteTopicsRequest, 1, memoryview(data)) == DeleteTopicsRequest(
        topic_names=("t",), timeout_ms=1000
    )


def test_request_v6() -> None:
    data = b"\3" + b"\2t" + bytes(16) + b"\0" + b"\0" + TOPIC_ID.bytes + b"\0" + b"\0\0\3\xe8\0"
    assert decode(DeleteTopicsRequest, 6, memoryview(data)) == DeleteTopicsRequest(
        topics=(DeleteTopicState(name="t"), DeleteTopicState(topic_id=TOPIC_ID)), timeout_ms=1000
    )


def test_response_v6() -> None:
    result = DeletableTopicResult(
        name=None, topic_id=TOPIC_ID, error_code=100, error_message="unknown"
    )
    (part,) = encode(DeleteTopicsResponse(responses=(result,)), 6)
    assert part == b"\0\0\0\0\2" + b"\0" + TOPIC_ID.bytes + b"\0\x64" + b"\x08unknown" + b"\0\0"


def test_a_topic_without_a_name_cannot_be_named_before_v6() -> None:
    result = DeletableTopicResult(name=None, topic_id=TOPIC_ID, error_code=100)
    with pytest.raises(EncodeError, match="name is null"):
        encode(DeleteTopicsResponse(responses=(result,)), 5)
