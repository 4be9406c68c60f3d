"""What a group allows: here, which offsets may be deleted while it has members."""

from __future__ import annotations

import pytest

from protocol.internal_topics.consumer_protocol import Subscription, decode_subscription, write
from server.coordination.groups import offset_checks
from server.coordination.groups.offset_checks import subscribed_among
from tests.harness.group_world import GroupWorld

TOPICS = frozenset({"a", "b", "c"})


def group_of(*subscriptions: bytes, protocol_type: str = "consumer") -> GroupWorld:
    """Returns a stable group with one member for each subscription."""
    world = GroupWorld()
    clients = [
        world.client(f"member-{number}", metadata=metadata, protocol_type=protocol_type)
        for number, metadata in enumerate(subscriptions)
    ]
    world.stabilize(*clients)
    return world


def test_topics_of_any_member_count_as_subscribed() -> None:
    world = group_of(write(Subscription(topics=("a",))), write(Subscription(topics=("c", "d"))))
    assert subscribed_among(world.group, TOPICS) == {"a", "c"}


def test_consumers_with_unreadable_subscriptions_may_be_subscribed_to_all_topics() -> None:
    assert subscribed_among(group_of(b"?").group, TOPICS) == TOPICS


def test_members_that_are_no_consumers_are_subscribed_to_nothing() -> None:
    subscription = write(Subscription(topics=("a",)))
    assert not subscribed_among(group_of(subscription, protocol_type="connect").group, TOPICS)


def test_each_subscription_is_decoded_once_for_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    world = group_of(write(Subscription(topics=("a",))), write(Subscription(topics=("b",))))
    decoded: list[bytes] = []

    def counted(data: bytes) -> Subscription:
        decoded.append(data)
        return decode_subscription(data)

    monkeypatch.setattr(offset_checks, "decode_subscription", counted)
    assert subscribed_among(world.group, TOPICS) == {"a", "b"}
    assert len(decoded) == 2
