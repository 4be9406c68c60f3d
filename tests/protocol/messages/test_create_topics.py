"""CreateTopics: bytes as clients send and expect them."""

from __future__ import annotations

import struct
import uuid

from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_request_v2() -> None:
    data = (
        struct.pack(">ih1sih", 1, 1, b"t", -1, -1)
        + struct.pack(">iiii", 1, 0, 1, 1)
        + struct.pack(">ih1sh", 1, 1, b"k", -1)
        + struct.pack(">i?", 1000, True)
    )
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),),
        configs=(CreatableTopicConfig(name="k", value=None),),
    )
    assert decode(CreateTopicsRequest, 2, memoryview(data)) == CreateTopicsRequest(
        topics=(topic,), timeout_ms=1000, validate_only=True
    )


def test_response_v2_drops_what_only_later_versions_say() -> None:
    result = CreatableTopicResult(
        name="t", topic_id=TOPIC_ID, error_code=36, error_message="exists", num_partitions=3
    )
    (part,) = encode(CreateTopicsResponse(topics=(result,)), 2)
    assert part == struct.pack(">iih1shh6s", 0, 1, 1, b"t", 36, 6, b"exists")


def test_response_v7_has_the_id_and_the_configuration() -> None:
    config = CreatableTopicConfigs(
        name="k", value="v", read_only=False, config_source=1, is_sensitive=False
    )
    result = CreatableTopicResult(
        name="t",
        topic_id=TOPIC_ID,
        error_code=0,
        error_message=None,
        num_partitions=3,
        replication_factor=1,
        configs=(config,),
    )
    (part,) = encode(CreateTopicsResponse(topics=(result,)), 7)
    expected = b"\2t" + TOPIC_ID.bytes + b"\0\0" + b"\0" + b"\0\0\0\3\0\1"
    assert part == b"\0\0\0\0\2" + expected + b"\2" + b"\2k\2v\0\1\0\0" + b"\0" + b"\0"


def test_why_there_is_no_configuration_is_a_tagged_field() -> None:
    result = CreatableTopicResult(
        name="t", error_code=0, error_message=None, topic_config_error_code=29, configs=None
    )
    (part,) = encode(CreateTopicsResponse(topics=(result,)), 5)
    assert isinstance(part, bytearray)
    assert part.endswith(b"\0" + b"\1\0\2\0\x1d" + b"\0")
