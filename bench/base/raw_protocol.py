"""The few requests that a load generator needs, packed by hand.

    Produce v8, Fetch v11, CreateTopics v4, Metadata v1: the newest versions without tagged fields.

The generator packs its frames once and then only copies bytes, so that the benchmark measures the
broker. Source: https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

CLIENT_ID = b"bench"

PARTITION_PRODUCED_BYTES = 4 + 2 + 8 + 8 + 8 + 4 + 2
"""The end of a partition without an error in a Produce v8 answer: no record errors, no message."""


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def framed(api_key: int, api_version: int, correlation_id: int, body: bytes) -> bytes:
    """Put the size and a version 1 request header before `body`."""
    header = struct.pack(">hhih", api_key, api_version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    """Returns a request with one batch for one partition (Produce v8)."""
    return produce_to_many_request(topic, [partition], batch, acks=acks)


def produce_to_many_request(
    topic: str, partitions: Sequence[int], batch: bytes, *, acks: int
) -> bytes:
    """Returns a request with the same batch for several partitions (Produce v8)."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + text(topic)
    body += struct.pack(">i", len(partitions))
    body += b"".join(struct.pack(">ii", each, len(batch)) + batch for each in partitions)
    return framed(0, 8, 1, body)


def fetch_request(topic: str, partition: int, offset: int, *, bytes_max: int) -> bytes:
    """Returns a request to read one partition from `offset` without waiting (Fetch v11)."""
    return fetch_from_many_request(topic, {partition: offset}, bytes_max=bytes_max, wait_ms=0)


def fetch_from_many_request(
    topic: str, offsets: Mapping[int, int], *, bytes_max: int, wait_ms: int
) -> bytes:
    """Returns a request to read partitions from these offsets, and to wait for records (Fetch v11)."""
    body = struct.pack(">iiiibiii", -1, wait_ms, 1, bytes_max, 0, 0, -1, 1) + text(topic)
    body += struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iiqqi", partition, -1, offset, -1, bytes_max)
    body += struct.pack(">i", 0) + text("")
    return framed(1, 11, 1, body)


def asked_of_fetch(frame: bytes | memoryview) -> tuple[int, int]:
    """Returns the offset and the limit in bytes of a `fetch_request`, given without its size."""
    (client_bytes,) = struct.unpack_from(">h", frame, 8)
    position = 10 + client_bytes + 29  # header; up to and including the count of topics
    (topic_bytes,) = struct.unpack_from(">h", frame, position)
    position += 2 + topic_bytes + 4 + 4 + 4  # count of partitions, partition, leader epoch
    offset, _, bytes_max = struct.unpack_from(">qqi", frame, position)
    return offset, bytes_max


def fetch_answer_head(topic: str, records_bytes: int) -> bytes:
    """Returns the bytes before the records of one partition in a Fetch v11 answer, with its size."""
    head = struct.pack(">iihii", 1, 0, 0, 0, 1) + text(topic)
    head += struct.pack(">iihqqqiii", 1, 0, 0, 0, 0, 0, -1, -1, records_bytes)
    return struct.pack(">i", len(head) + records_bytes) + head


def delete_topic_request(topic: str) -> bytes:
    """Returns a request to delete one topic (DeleteTopics v1)."""
    return framed(20, 1, 1, struct.pack(">i", 1) + text(topic) + struct.pack(">i", 30_000))


def create_topic_request(topic: str, partitions: int, configs: dict[str, str]) -> bytes:
    """Returns a request to create one topic (CreateTopics v4)."""
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">ihi", partitions, 1, 0)
    body += struct.pack(">i", len(configs))
    body += b"".join(text(name) + text(value) for name, value in configs.items())
    return framed(19, 4, 1, body + struct.pack(">i?", 30_000, False))


def alter_broker_request(node_id: str, name: str, value: str) -> bytes:
    """Returns a request to set one dynamic property of a broker (IncrementalAlterConfigs v0)."""
    change = text(name) + struct.pack(">b", 0) + text(value)
    resource = struct.pack(">ib", 1, 4) + text(node_id) + struct.pack(">i", 1) + change
    return framed(44, 0, 1, resource + b"\x00")


def api_versions_request() -> bytes:
    """Returns a request for the served APIs (ApiVersions v0): its answer shows that a broker serves."""
    return framed(18, 0, 1, b"")


def produce_errors(response: bytes | memoryview) -> set[int]:
    """Returns the error codes other than 0 in a Produce v8 answer for one topic."""
    position = 4 + 4  # correlation id, count of topics
    (length,) = struct.unpack_from(">h", response, position)
    position += 2 + length
    (count,) = struct.unpack_from(">i", response, position)
    position += 4
    for _ in range(count):
        _, error_code = struct.unpack_from(">ih", response, position)
        if error_code:
            return {error_code}
        position += PARTITION_PRODUCED_BYTES
    return set()


def produced_offset(response: bytes | memoryview) -> int:
    """Returns the batch's base offset in a Produce v8 answer for one partition, without an error."""
    (length,) = struct.unpack_from(">h", response, 8)
    error_code, base_offset = struct.unpack_from(">hq", response, 10 + length + 8)
    assert error_code == 0, error_code
    return int(base_offset)


def fetched_records(response: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yields each partition with its records, in a Fetch v11 answer for one topic without errors."""
    (length,) = struct.unpack_from(">h", response, 18)
    position = 20 + length
    (count,) = struct.unpack_from(">i", response, position)
    position += 4
    for _ in range(count):
        partition, error_code = struct.unpack_from(">ih", response, position)
        assert error_code == 0, error_code
        (aborted,) = struct.unpack_from(">i", response, position + 30)
        position += 34 + 16 * max(aborted, 0) + 4
        (size,) = struct.unpack_from(">i", response, position)
        position += 4
        yield partition, response[position : position + size]
        position += size


def fetch_head(response: bytes | memoryview) -> tuple[int, int, int]:
    """Returns the error code, the size of the records and their position in a Fetch v11 answer."""
    position = (
        4 + 4 + 2 + 4 + 4
    )  # correlation id, throttle, error code, session id, count of topics
    (length,) = struct.unpack_from(">h", response, position)
    position += 2 + length + 4
    _, error_code = struct.unpack_from(">ih", response, position)
    position += 4 + 2 + 8 + 8 + 8  # index, error, high watermark, last stable offset, log start
    (aborted,) = struct.unpack_from(">i", response, position)
    position += 4 + 16 * max(aborted, 0) + 4  # aborted transactions, preferred read replica
    (size,) = struct.unpack_from(">i", response, position)
    return error_code, size, position + 4
