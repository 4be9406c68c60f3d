"""Sets of strings that are encoded before the message that they belong to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.wire.decode import decode
from protocol.wire.encode import encode, encode_in_steps
from protocol.wire.encoded_strings import (
    STEP_ELEMENTS,
    EncodedStrings,
    encode_strings_in_steps,
)
from protocol.wire.errors import EncodeError
from protocol.wire.primitives import STRING_BYTES_MAX
from protocol.wire.schema import Part

HEARTBEAT = ConsumerGroupHeartbeatRequest(
    group_id="g", member_id="m", member_epoch=0, topic_partitions=()
)


def joined(parts: list[Part]) -> bytes:
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def encoded(names: list[str]) -> tuple[EncodedStrings, int]:
    """Returns the set, and the number of pauses."""
    steps, pauses = encode_strings_in_steps(dict.fromkeys(names)), 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: EncodedStrings = ended.value
            return result, pauses
        pauses += 1


@pytest.mark.parametrize("count", [0, 1, STEP_ELEMENTS, 5_000])
def test_it_encodes_as_a_tuple_does(count: int) -> None:
    names = [f"topic-ä-{number}" * (1 + number % 20) for number in range(count)]
    strings, pauses = encoded(names)
    expected = joined(encode(replace(HEARTBEAT, subscribed_topic_names=tuple(names)), 1))
    message = replace(HEARTBEAT, subscribed_topic_names=strings)  # type: ignore[arg-type]

    assert joined(encode(message, 1)) == expected
    assert pauses >= count // STEP_ELEMENTS

    steps, parts = encode_in_steps(message, 1, bytearray()), None
    while parts is None:
        try:
            next(steps)
        except StopIteration as ended:
            parts = ended.value
    assert joined(parts) == expected


def test_it_is_the_set_of_its_strings() -> None:
    strings, _ = encoded(["a", "b"])
    assert strings == frozenset(("a", "b"))
    assert type(strings | {"c"}) is frozenset


def test_without_compact_lengths_it_encodes_as_a_set_does() -> None:
    strings, _ = encoded(["a", "bc"])
    request = DeleteGroupsRequest(groups_names=strings)  # type: ignore[arg-type]
    read = decode(DeleteGroupsRequest, 0, memoryview(joined(encode(request, 0))))
    assert frozenset(read.groups_names) == strings


def test_a_string_that_no_message_carries_is_refused() -> None:
    assert encoded(["x" * STRING_BYTES_MAX])[0]
    with pytest.raises(EncodeError, match="string of 32768 bytes"):
        encoded(["x" * (STRING_BYTES_MAX + 1)])
