"""Metadata: bytes as clients send and expect them."""

from __future__ import annotations

import struct
import uuid

import pytest

from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def response() -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=4,
        replica_nodes=(1,),
        isr_nodes=(1,),
    )
    topic = MetadataResponseTopic(
        error_code=0, name="t", topic_id=TOPIC_ID, partitions=(partition,)
    )
    broker = MetadataResponseBroker(node_id=1, host="h", port=9092)
    return MetadataResponse(brokers=(broker,), cluster_id="c", controller_id=1, topics=(topic,))


def test_empty_topics_and_null_topics_are_told_apart() -> None:
    """v0 has no null: there, an empty list asks for all topics."""
    assert decode(MetadataRequest, 0, memoryview(b"\0\0\0\0")).topics == ()
    assert decode(MetadataRequest, 1, memoryview(b"\0\0\0\0")).topics == ()
    assert decode(MetadataRequest, 1, memoryview(b"\xff\xff\xff\xff")).topics is None
    assert decode(MetadataRequest, 9, memoryview(b"\0\1\0\0\0")).topics is None


@pytest.mark.parametrize("version", [0, 1, 3])
def test_auto_creation_is_allowed_where_a_client_cannot_say(version: int) -> None:
    request = decode(MetadataRequest, version, memoryview(b"\0\0\0\1\0\1t"))
    assert request.topics == (MetadataRequestTopic(name="t"),)
    assert request.allow_auto_topic_creation


def test_request_v12_asks_by_id() -> None:
    data = b"\2" + TOPIC_ID.bytes + b"\0\0" + b"\0\1\0"
    request = decode(MetadataRequest, 12, memoryview(data))
    assert request.topics == (MetadataRequestTopic(topic_id=TOPIC_ID, name=None),)
    assert not request.allow_auto_topic_creation
    assert request.include_topic_authorized_operations


def test_response_v0_has_brokers_and_topics_only() -> None:
    (part,) = encode(response(), 0)
    assert part == (
        struct.pack(">iih1si", 1, 1, 1, b"h", 9092)
        + struct.pack(">ihh1s", 1, 0, 1, b"t")
        + struct.pack(">ihiiiiii", 1, 0, 0, 1, 1, 1, 1, 1)
    )


def test_response_v12() -> None:
    (part,) = encode(response(), 12)
    partition = struct.pack(">hiii", 0, 0, 1, 4) + b"\2\0\0\0\1" * 2 + b"\1\0"
    operations = b"\x80\0\0\0"
    topic = b"\0\0\2t" + TOPIC_ID.bytes + b"\0" + b"\2" + partition + operations + b"\0"
    broker = struct.pack(">i2sixx", 1, b"\2h", 9092)
    assert part == b"\0\0\0\0" + b"\2" + broker + b"\2c\0\0\0\1" + b"\2" + topic + b"\0"
