"""Which bound counts the decoded form of a large request."""

from __future__ import annotations

import pytest

from protocol.wire.api_keys import APIS, ApiKey
from server.net.decoded_size import (
    DECODED_FACTOR,
    LARGE_FRAME_BYTES,
    decoded_memory_bytes,
    request_memory_bytes,
)

SIZE = LARGE_FRAME_BYTES + 1
UNKNOWN_KEY = 9_999


def frame(api_key: int, size: int) -> bytearray:
    return bytearray(api_key.to_bytes(2, "big")) + bytes(size - 2)


@pytest.mark.parametrize("api_key", [*APIS, UNKNOWN_KEY])
def test_only_the_frame_of_a_small_request_counts(api_key: int) -> None:
    small = frame(api_key, LARGE_FRAME_BYTES)
    assert (request_memory_bytes(small), decoded_memory_bytes(small)) == (LARGE_FRAME_BYTES, 0)


def test_a_large_fetch_counts_its_partitions_with_its_frame_and_does_not_wait() -> None:
    large = frame(ApiKey.FETCH, SIZE)
    assert request_memory_bytes(large) == SIZE * DECODED_FACTOR
    assert decoded_memory_bytes(large) == 0


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_requests_that_others_wait_for_do_not_wait_for_memory(api_key: int) -> None:
    large = frame(api_key, SIZE)
    assert (request_memory_bytes(large), decoded_memory_bytes(large)) == (SIZE, 0)


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.CREATE_TOPICS, UNKNOWN_KEY])
def test_any_other_large_request_waits_for_its_decoded_size(api_key: int) -> None:
    large = frame(api_key, SIZE)
    assert request_memory_bytes(large) == SIZE
    assert decoded_memory_bytes(large) == SIZE * DECODED_FACTOR
