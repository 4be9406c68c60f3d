"""Subscriptions by regular expression: RE2's syntax, whole names, and no way to stop the broker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from server.coordination.groups.consumer.topic_patterns import (
    MATCHED_AT_ONCE_MAX,
    REMEMBERED_MAX,
    TopicPatterns,
    matching,
)
from server.coordination.groups.events import Matches
from server.runtime.turns import Pace, Turns
from server.topics.name_patterns import InvalidPattern

NAMES = ("orders", "orders-eu", "events")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu"}),
        ("order", set()),
        (r"^\w+$", {"orders", "events"}),
        (".*", set(NAMES)),
        ("", set()),
    ],
)
def test_whole_names_match(pattern: str, expected: set[str]) -> None:
    assert matching(pattern, NAMES) == expected


@pytest.mark.parametrize("pattern", ["[", "(?=a)", r"(a)\1", "a" * 9 + "{1001}" * 3, "(" * 5000])
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        matching(pattern, NAMES)


def test_no_expression_takes_longer_than_its_length() -> None:
    assert matching("(a*)*b", ["a" * 249]) == frozenset()


@dataclass
class Topics:
    """Topics of which only the names matter."""

    names: list[str]
    revision: int = 1

    def matchable(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in self.names]


async def matched(
    patterns: TopicPatterns, wanted: Collection[str], may_see: Callable[[str], bool] | None = None
) -> Matches:
    found = await patterns.match(wanted, may_see, Pace(Turns()))
    assert found is not None
    return found


MANY = [f"topic-{number}" for number in range(MATCHED_AT_ONCE_MAX + 1)]


async def test_few_topics_are_matched_within_the_step() -> None:
    patterns = TopicPatterns(Topics(MANY[:-1]))  # type: ignore[arg-type]

    assert await patterns.match(["topic.*"], None, Pace(Turns())) is None
    assert await TopicPatterns(Topics(MANY)).match([], None, Pace(Turns())) is None  # type: ignore[arg-type]


async def test_many_topics_are_matched_ahead_as_a_step_would() -> None:
    patterns = TopicPatterns(Topics(MANY))  # type: ignore[arg-type]

    found = await matched(patterns, ["topic-1.*", "none", "["])

    assert found.by_pattern == {each: matching(each, MANY) for each in ("topic-1.*", "none")}
    assert found.revision == 1


async def test_matches_hold_until_the_topics_change_and_few_are_remembered() -> None:
    topics = Topics(MANY)
    patterns = TopicPatterns(topics)  # type: ignore[arg-type]
    before = (await matched(patterns, ["topic.*"])).by_pattern["topic.*"]
    assert (await matched(patterns, ["topic.*"])).by_pattern["topic.*"] is before

    topics.names, topics.revision = [*MANY, "topic-new"], 2
    after = await matched(patterns, ["topic.*"])
    assert after.revision == 2
    assert after.by_pattern["topic.*"] == before | {"topic-new"}

    await matched(patterns, [f"topic-{number}" for number in range(REMEMBERED_MAX * 2)])
    assert len(patterns._remembered) == REMEMBERED_MAX


async def test_each_client_gets_only_the_topics_that_it_may_describe() -> None:
    patterns = TopicPatterns(Topics(MANY))  # type: ignore[arg-type]

    seen = await matched(patterns, [".*"], lambda name: name.endswith("7"))

    assert seen.by_pattern[".*"] == {name for name in MANY if name.endswith("7")}
    assert (await matched(patterns, [".*"])).by_pattern[".*"] == set(MANY)


async def test_a_hundred_thousand_names_are_matched_in_slices() -> None:
    patterns = TopicPatterns(Topics([f"topic-{number}" for number in range(100_000)]))  # type: ignore[arg-type]
    pace = Pace(Turns())

    await patterns.match(["nothing"], None, pace)

    assert pace.has_rested
