"""A member's subscription over its heartbeats."""

from __future__ import annotations

from protocol.wire.encoded_strings import EncodedStrings, encode_strings_in_steps
from server.coordination.groups.consumer.member import ConsumerMember
from server.coordination.groups.events import Beat


def encoded(*names: str) -> EncodedStrings:
    steps = encode_strings_in_steps(dict.fromkeys(names))
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            strings: EncodedStrings = ended.value
            return strings


def beat(names: frozenset[str] | tuple[str, ...] | None) -> Beat:
    return Beat(member_id="m", member_epoch=1, topic_names=names)


def test_the_names_of_a_heartbeat_replace_those_before() -> None:
    member = ConsumerMember(member_id="m").updated_by(beat(("a", "b")))
    assert member.topics == {"a", "b"}
    assert member.updated_by(beat(None)).topics == {"a", "b"}
    assert member.updated_by(beat(())).topics == frozenset()


def test_a_set_that_is_encoded_stays_so() -> None:
    names = encoded("a", "b")
    assert ConsumerMember(member_id="m").updated_by(beat(names)).topics is names


def test_the_same_names_again_stay_the_same_object() -> None:
    names = encoded("a", "b")
    member = ConsumerMember(member_id="m").updated_by(beat(names))
    for again in (encoded("a", "b"), encoded("b", "a"), ("b", "a"), frozenset(("a", "b"))):
        assert member.updated_by(beat(again)).topics is names
    assert member.updated_by(beat(encoded("a", "c"))).topics == {"a", "c"}
