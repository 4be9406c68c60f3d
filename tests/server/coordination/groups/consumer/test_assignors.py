"""Assignors: every partition once, fair shares, and no more moves than that needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordination.groups.consumer.assignors import ASSIGNORS, Assignor, Subscriber
from server.coordination.groups.events import Assignment

TOPICS = [uuid.UUID(int=number) for number in range(1, 6)]

each_assignor = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)


def members(*names: str, topics: Sequence[uuid.UUID] = TOPICS[:1]) -> list[Subscriber]:
    return [Subscriber(member_id=name, topics=frozenset(topics)) for name in names]


def again(before: Sequence[Subscriber], shares: Mapping[str, Assignment]) -> list[Subscriber]:
    """The same members, with what they were given."""
    return [
        Subscriber(
            member_id=each.member_id,
            instance_id=each.instance_id,
            topics=each.topics,
            has=shares.get(each.member_id, {}),
        )
        for each in before
    ]


def places(share: Assignment) -> set[tuple[uuid.UUID, int]]:
    return {(topic, number) for topic, numbers in share.items() for number in numbers}


def size(share: Assignment) -> int:
    return sum(map(len, share.values()))


counts_strategy = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[uuid.UUID, int]]:
    counts = draw(counts_strategy)
    topics = st.frozensets(st.sampled_from(sorted(counts)))
    same = draw(st.booleans())
    subscribed = draw(topics)
    found = [
        Subscriber(
            member_id=f"m{number}",
            instance_id=draw(st.sampled_from([None, f"i{number}"])),
            topics=subscribed if same else draw(topics),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return found, counts


@each_assignor
@given(group=groups())
def test_every_partition_goes_to_one_member_that_wants_its_topic(
    assignor: Assignor, group: tuple[list[Subscriber], dict[uuid.UUID, int]]
) -> None:
    subscribers, counts = group
    shares = assignor(subscribers, counts)
    check(subscribers, counts, shares)


def check(
    subscribers: Sequence[Subscriber],
    counts: Mapping[uuid.UUID, int],
    shares: Mapping[str, Assignment],
) -> None:
    assert shares.keys() == {each.member_id for each in subscribers}
    given_out = [place for share in shares.values() for place in places(share)]
    wanted = frozenset[uuid.UUID]().union(*(each.topics for each in subscribers))
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {(topic, n) for topic in wanted for n in range(counts[topic])}
    for each in subscribers:
        assert shares[each.member_id].keys() <= each.topics
        assert all(shares[each.member_id].values()), "a topic without partitions"


@each_assignor
@given(group=groups())
def test_nothing_moves_where_nothing_has_changed(
    assignor: Assignor, group: tuple[list[Subscriber], dict[uuid.UUID, int]]
) -> None:
    subscribers, counts = group
    shares = assignor(subscribers, counts)
    assert assignor(again(subscribers, shares), counts) == shares


@each_assignor
@given(group=groups(), gone=st.integers(0, 5), counts_after=counts_strategy)
def test_after_any_change_it_is_whole_again(
    assignor: Assignor,
    group: tuple[list[Subscriber], dict[uuid.UUID, int]],
    gone: int,
    counts_after: dict[uuid.UUID, int],
) -> None:
    subscribers, counts = group
    shares = assignor(subscribers, counts)
    rest = [
        Subscriber(
            member_id=each.member_id,
            topics=each.topics & frozenset(counts_after),
            has=shares[each.member_id],
        )
        for number, each in enumerate(subscribers)
        if number != gone
    ]
    check(rest, counts_after, assignor(rest, counts_after))


@given(group=groups())
def test_uniform_leaves_no_move_that_would_make_two_shares_more_alike(
    group: tuple[list[Subscriber], dict[uuid.UUID, int]],
) -> None:
    subscribers, counts = group
    shares = ASSIGNORS["uniform"](subscribers, counts)
    topics = {each.member_id: each.topics for each in subscribers}
    for share in shares.values():
        for taker in shares:
            if share.keys() & topics[taker]:
                assert size(share) <= size(shares[taker]) + 1


@given(group=groups())
def test_range_gives_of_each_topic_as_many_to_each(
    group: tuple[list[Subscriber], dict[uuid.UUID, int]],
) -> None:
    subscribers, counts = group
    shares = ASSIGNORS["range"](subscribers, counts)
    for topic in counts:
        sizes = {
            len(shares[each.member_id].get(topic, ()))
            for each in subscribers
            if topic in each.topics
        }
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(sizes=st.integers(1, 40), before=st.integers(1, 6), after=st.integers(1, 6))
def test_uniform_moves_no_more_than_it_must(sizes: int, before: int, after: int) -> None:
    counts = {TOPICS[0]: sizes}
    old = members(*(f"m{number}" for number in range(before)))
    shares = ASSIGNORS["uniform"](old, counts)
    new = again(members(*(f"m{number}" for number in range(after))), shares)
    moved = ASSIGNORS["uniform"](new, counts)
    kept = sum(len(places(each.has) & places(moved[each.member_id])) for each in new)
    quota, spare = divmod(sizes, after)
    had = sorted((size(each.has) for each in new), reverse=True)
    most = sum(min(have, quota + (at < spare)) for at, have in enumerate(had))
    assert kept == most


def test_range_gives_the_same_partitions_of_topics_that_are_alike() -> None:
    counts = {TOPICS[0]: 4, TOPICS[1]: 4}
    shares = ASSIGNORS["range"](members("a", "b", topics=TOPICS[:2]), counts)
    assert shares == {
        "a": {TOPICS[0]: {0, 1}, TOPICS[1]: {0, 1}},
        "b": {TOPICS[0]: {2, 3}, TOPICS[1]: {2, 3}},
    }


@each_assignor
def test_static_members_are_served_first(assignor: Assignor) -> None:
    topics = frozenset(TOPICS[:1])
    dynamic = Subscriber(member_id="a", topics=topics)
    static = Subscriber(member_id="z", instance_id="i", topics=topics)
    assert assignor([dynamic, static], {TOPICS[0]: 1}) == {"a": {}, "z": {TOPICS[0]: {0}}}


@each_assignor
def test_a_group_without_members_is_given_nothing(assignor: Assignor) -> None:
    assert assignor([], {TOPICS[0]: 1}) == {}
