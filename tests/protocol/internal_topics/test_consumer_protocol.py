"""Subscriptions and assignments, against kafka-python's and under any bytes."""

from __future__ import annotations

import contextlib
import struct
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.internal_topics.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    write,
)
from protocol.wire.errors import DecodeError

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.consumer.metadata import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

OWNED = (TopicPartitions(topic="orders", partitions=(0, 7)),)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_subscription_is_read_as_it_was_written(version: int) -> None:
    told = Subscription(
        topics=("a", "b"),
        user_data=b"\0\1",
        owned_partitions=OWNED if version >= 1 else (),
        generation_id=5 if version >= 2 else -1,
        rack_id="r" if version >= 3 else None,
    )

    assert decode_subscription(write(told, version)) == told


def test_an_assignment_is_read_as_it_was_written() -> None:
    told = Assignment(assigned_partitions=OWNED, user_data=None)

    assert decode_assignment(write(told)) == told
    assert decode_assignment(b"") == Assignment(assigned_partitions=())


def test_the_bytes_are_those_of_another_client() -> None:
    theirs = ConsumerProtocolSubscription(
        version=1, topics=["a", "b"], user_data=None, owned_partitions=[]
    ).encode()

    assert write(Subscription(topics=("a", "b")), 1) == theirs
    assigned = ConsumerProtocolAssignment(
        version=1, assigned_partitions=[("orders", [0, 7])], user_data=b""
    ).encode()
    assert write(Assignment(assigned_partitions=OWNED, user_data=b""), 1) == assigned


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    told = Subscription(topics=("a",), rack_id="r")
    later = struct.pack(">h", 9) + write(told)[2:] + b"more"

    assert decode_subscription(later) == told


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_decode_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(DecodeError):
            decode(data)
