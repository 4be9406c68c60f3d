"""Requests that no client would send get their documented answers, and the broker stays in service.

A peer that breaks the framing, asks for an API or version that is not advertised, or sends a body
that cannot be decoded is cut off; bad batches are answered with an error code.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from confluent_kafka import Producer
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.harness.clients import create_topic, deliver_all
from tests.harness.raw_connection import (
    API_VERSIONS,
    METADATA,
    ConnectionEnded,
    RawConnection,
    frame,
    string,
)

NONE, CORRUPT_MESSAGE, UNSUPPORTED_VERSION, INVALID_RECORD = 0, 2, 35, 87
NO_TAGS = b"\x00"
SECONDS_TO_CLOSE = 5.0
CORRELATION_ID = 7


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = f"bad-input-{random.randrange(1 << 32):08x}"
    create_topic(bootstrap, name)
    return name


@pytest.fixture
def peer(port: int) -> Iterator[RawConnection]:
    with RawConnection(port, timeout=SECONDS_TO_CLOSE) as connection:
        yield connection


@pytest.fixture(scope="module")
def bystander(port: int) -> Iterator[RawConnection]:
    """A connection that sees all of the bad input come and go."""
    with RawConnection(port) as connection:
        yield connection


@pytest.fixture(scope="module")
def producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap})


@pytest.fixture(autouse=True)
def serves_on(bystander: RawConnection, producer: Producer, topic: str) -> Iterator[None]:
    """Connections made before work on after the bad input: a record goes in and comes out."""
    end_before = bystander.latest_offset(topic)
    yield
    deliver_all(producer, topic, [(b"key", b"value after bad input")])
    end = bystander.latest_offset(topic)
    assert end > end_before
    assert b"value after bad input" in bystander.fetch(topic, end - 1).records


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhi", api_key, version, CORRELATION_ID) + string("raw")


FRAMES_THAT_END_THE_CONNECTION = [
    pytest.param(struct.pack(">i", 0x7FFFFFFF), id="a_frame_of_2_GiB"),
    pytest.param(struct.pack(">i", -1), id="a_negative_frame_length"),
    pytest.param(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n", id="http"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), id="a_tls_hello"),
    pytest.param(frame(b""), id="an_empty_frame"),
    pytest.param(frame(b"\x00\x03\x00"), id="a_frame_shorter_than_a_header"),
    pytest.param(frame(header(999, 0)), id="an_unknown_api_key"),
    pytest.param(frame(header(-1, 0)), id="a_negative_api_key"),
    pytest.param(frame(header(METADATA, 99)), id="an_unknown_version_of_a_known_api"),
    pytest.param(
        frame(struct.pack(">hhih", METADATA, 1, 7, 500) + b"x"), id="a_client_id_past_the_frame"
    ),
    pytest.param(
        frame(header(METADATA, 1) + struct.pack(">i", 0x7FFFFFFF)), id="an_array_past_the_frame"
    ),
    pytest.param(
        frame(header(METADATA, 1) + struct.pack(">ih", 1, 5) + b"to"), id="a_body_cut_short"
    ),
]


@pytest.mark.parametrize("data", FRAMES_THAT_END_THE_CONNECTION)
def test_a_peer_that_breaks_the_protocol_is_cut_off(peer: RawConnection, data: bytes) -> None:
    peer.send(data)

    assert peer.ended()


@pytest.mark.parametrize("seed", range(50))
def test_a_random_body_is_answered_in_its_frame_or_cut_off(peer: RawConnection, seed: int) -> None:
    garbage = random.Random(seed)
    peer.send(frame(header(garbage.randrange(70), 0) + garbage.randbytes(40)))
    peer.socket.shutdown(socket.SHUT_WR)

    answers = list(answers_until_the_end(peer))

    assert all(answer.startswith(struct.pack(">i", CORRELATION_ID)) for answer in answers)
    assert len(answers) <= 1


def answers_until_the_end(connection: RawConnection) -> Iterator[bytes]:
    while True:
        try:
            yield connection.receive()
        except ConnectionEnded:
            return


def test_a_frame_that_the_peer_never_finishes_is_dropped_with_its_connection(
    peer: RawConnection,
) -> None:
    peer.send(struct.pack(">i", 1000) + header(METADATA, 1))
    peer.socket.shutdown(socket.SHUT_WR)

    assert peer.ended()


def test_an_unknown_version_of_api_versions_is_answered_with_version_0(peer: RawConnection) -> None:
    """From the list in it a client finds the version to ask again with."""
    answer = peer.request(API_VERSIONS, 99, NO_TAGS + b"\xff not to be parsed")

    error_code, count = struct.unpack_from(">hi", answer)
    rows = [struct.unpack_from(">hhh", answer, 6 + 6 * row) for row in range(count)]
    assert error_code == UNSUPPORTED_VERSION
    assert len(answer) == 6 + 6 * count
    (own_row,) = (row for row in rows if row[0] == API_VERSIONS)
    assert own_row[1] == 0
    assert own_row[2] >= 3


def good_batch(*, key: bytes = b"key") -> bytearray:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, 1_700_000_000_000, key, b"value", [])
    return bytearray(builder.build())


def legacy_batch(magic: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, 1_700_000_000_000, b"key", b"value")
    return bytes(builder.build())


def test_a_good_batch_is_accepted(peer: RawConnection, topic: str) -> None:
    """So that what the next tests are refused for is what they changed."""
    error_code, base_offset = peer.produce(topic, bytes(good_batch()))

    assert error_code == NONE
    assert base_offset == peer.latest_offset(topic) - 1


def with_wrong_crc() -> bytes:
    batch = good_batch()
    batch[-1] ^= 1
    return bytes(batch)


def with_magic(magic: int) -> bytes:
    batch = good_batch()
    batch[16] = magic
    return bytes(batch)


BAD_BATCHES: list[object] = [
    pytest.param(with_wrong_crc, {CORRUPT_MESSAGE}, id="wrong_crc"),
    pytest.param(lambda: legacy_batch(0), {INVALID_RECORD}, id="magic_0"),
    pytest.param(lambda: legacy_batch(1), {INVALID_RECORD}, id="magic_1"),
    pytest.param(lambda: with_magic(3), {INVALID_RECORD, CORRUPT_MESSAGE}, id="magic_3"),
    pytest.param(lambda: bytes(good_batch() * 2), {INVALID_RECORD}, id="two_batches"),
    pytest.param(
        lambda: bytes(good_batch())[:-3], {CORRUPT_MESSAGE, INVALID_RECORD}, id="cut_short"
    ),
]


@pytest.mark.parametrize(("make", "error_codes"), BAD_BATCHES)
def test_a_bad_batch_is_refused_with_its_error_and_stores_nothing(
    peer: RawConnection, topic: str, make: Callable[[], bytes], error_codes: set[int]
) -> None:
    end_before = peer.latest_offset(topic)

    error_code, base_offset = peer.produce(topic, make())

    assert error_code in error_codes
    assert base_offset == -1
    assert peer.latest_offset(topic) == end_before
