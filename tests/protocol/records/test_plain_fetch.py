"""The compiled reader of plain Fetch requests, against the specification, which reads all."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from protocol.records.plain_fetch import read_plain_fetch
from protocol.wire.errors import ProtocolError
from protocol.wire.request import parse_request
from tests.harness.examples import examples
from tests.harness.raw_client import encode_request

TOPIC_ID = uuid.UUID(int=(1 << 100) + 7)
VERSIONS = range(5, 19)
PARTITION = FetchPartition(
    partition=3, fetch_offset=1 << 40, partition_max_bytes=1 << 20, current_leader_epoch=8
)
TOPIC = FetchTopic(topic="orders", topic_id=TOPIC_ID, partitions=(PARTITION,))
REQUEST = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=50 << 20,
    isolation_level=1,
    topics=(TOPIC,),
    session_epoch=0,
    rack_id="west",
)


FORGOTTEN = ForgottenTopic(topic="a", topic_id=TOPIC_ID, partitions=(1,))


def of_partition(**changed: Any) -> tuple[FetchTopic, ...]:
    return (replace(TOPIC, partitions=(replace(PARTITION, **changed),)),)


def frame_of(request: FetchRequest, version: int, correlation_id: int = 7) -> bytearray:
    return bytearray(encode_request(request, version, correlation_id))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_request_is_read_as_the_specification_reads_it(version: int) -> None:
    found = read_plain_fetch(frame_of(REQUEST, version, correlation_id=-5))
    assert found is not None
    assert (found.api_version, found.correlation_id) == (version, -5)
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes) == (500, 1, 50 << 20)
    assert found.isolation_level == 1
    assert found.topic == (TOPIC_ID.bytes if version >= 13 else b"orders")
    assert (found.partition, found.fetch_offset, found.partition_max_bytes) == (3, 1 << 40, 1 << 20)
    assert found.current_leader_epoch == (8 if version >= 9 else -1)


@pytest.mark.parametrize(
    ("changed", "versions"),
    [
        ({"replica_id": 2}, range(5, 15)),
        ({"replica_state": ReplicaState(replica_id=2)}, range(15, 19)),
        ({"session_id": 9}, range(7, 19)),
        ({"session_epoch": 1}, range(7, 19)),
        ({"session_epoch": -2}, range(7, 19)),
        ({"topics": ()}, VERSIONS),
        ({"topics": (TOPIC, TOPIC)}, VERSIONS),
        ({"topics": (replace(TOPIC, partitions=()),)}, VERSIONS),
        ({"topics": (replace(TOPIC, partitions=(PARTITION,) * 2),)}, VERSIONS),
        ({"topics": of_partition(last_fetched_epoch=4)}, range(12, 19)),
        ({"topics": of_partition(log_start_offset=4)}, VERSIONS),
        ({"topics": of_partition(high_watermark=4)}, range(18, 19)),
        ({"forgotten_topics_data": (FORGOTTEN,)}, range(7, 19)),
        ({"rack_id": "\u0119"}, range(11, 19)),
        ({"cluster_id": "c"}, range(12, 19)),
    ],
    ids=[
        "a replica",
        "a replica by tag",
        "a session",
        "an epoch of a session",
        "no epoch of a session",
        "no topic",
        "two topics",
        "no partition",
        "two partitions",
        "a last epoch",
        "a log start",
        "a high watermark",
        "a forgotten topic",
        "a rack that is not ASCII",
        "a cluster id",
    ],
)
def test_any_other_request_is_not_plain(changed: dict[str, Any], versions: range) -> None:
    for version in versions:
        assert read_plain_fetch(frame_of(replace(REQUEST, **changed), version)) is None


@pytest.mark.parametrize("version", [3, 4, 19])
def test_other_versions_are_not_plain(version: int) -> None:
    frame = frame_of(REQUEST, 5)
    frame[2:4] = version.to_bytes(2, "big")
    assert read_plain_fetch(frame) is None


MUTATIONS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4)


@given(st.sampled_from(VERSIONS), MUTATIONS, st.integers(0, 12), st.binary(max_size=3))
@settings(max_examples=examples(1_000))
def test_what_is_read_of_a_changed_frame_is_what_the_specification_reads(
    version: int, mutations: list[tuple[int, int]], cut: int, behind: bytes
) -> None:
    frame = frame_of(REQUEST, version)
    for position, value in mutations:
        frame[position % len(frame)] = value
    frame = frame[: len(frame) - cut] + behind
    found = read_plain_fetch(frame)
    if found is None:
        return
    try:
        request = parse_request(frame)
    except (ProtocolError, UnicodeDecodeError):
        # Nothing exists by a name that is not UTF-8, so the caller finds no topic.
        assert not found.topic.isascii()
        return
    body = request.body
    assert isinstance(body, FetchRequest)
    assert (request.header.api_version, request.header.correlation_id, request.surplus_bytes) == (
        found.api_version,
        found.correlation_id,
        0,
    )
    assert body.session_epoch in (0, -1)
    (topic,) = body.topics
    (partition,) = topic.partitions
    named = topic.topic_id.bytes if found.api_version >= 13 else topic.topic.encode()
    read = replace(
        REQUEST,
        max_wait_ms=found.max_wait_ms,
        min_bytes=found.min_bytes,
        max_bytes=found.max_bytes,
        isolation_level=found.isolation_level,
        topics=body.topics,
        session_epoch=body.session_epoch,
        rack_id=body.rack_id,
    )
    assert (named, body) == (found.topic, read)
    assert partition == FetchPartition(
        partition=found.partition,
        fetch_offset=found.fetch_offset,
        partition_max_bytes=found.partition_max_bytes,
        current_leader_epoch=found.current_leader_epoch,
    )
