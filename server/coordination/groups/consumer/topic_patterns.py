"""Matches topics against regular expressions: RE2 syntax like Kafka's, in linear time. Pure.

A member chooses the expression, so an expensive one must not stall the broker. To match 100,000 names
takes half a second, so `TopicPatterns` does that in slices, before the step of the group that needs it.

Source: Apache Kafka, TopicRegexResolver.java (RE2/J).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

from server.coordination.groups.consumer.topic_catalog import TopicCatalog
from server.coordination.groups.events import Matches
from server.runtime.turns import Pace
from server.topics.name_patterns import InvalidPattern, compiled_pattern
from storage.threads import loop_thread

MATCHED_AT_ONCE_MAX = 500
"""So many topics are matched within a step: 2 ms."""
REMEMBERED_MAX = 32
"""How many expressions have their matches remembered; beyond that, the least recent is forgotten."""


@loop_thread
class TopicPatterns:
    """Matches expressions ahead of the steps of groups, and remembers the matches."""

    __slots__ = ("_remembered", "_topics")

    def __init__(self, topics: TopicCatalog) -> None:
        self._topics = topics
        # By expression, with the revision of the topics; the one used longest ago first.
        self._remembered: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()

    async def match(
        self, patterns: Collection[str], may_see: Callable[[str], bool] | None, pace: Pace
    ) -> Matches | None:
        """Returns the matches of valid expressions; None if a step may as well match itself.

        A step may run in a thread, where `may_see` must not be called.

        Args:
            may_see: whether the client may describe a topic; None: every one.
        """
        topics = self._topics.matchable() if patterns else ()
        if len(topics) <= MATCHED_AT_ONCE_MAX and may_see is None:
            return None
        revision, found = self._topics.revision, dict[str, frozenset[str]]()
        for pattern in patterns:
            known = self._remembered.get(pattern)
            if known is None or known[0] != revision:
                try:
                    compiled = compiled_pattern(pattern)
                except InvalidPattern:
                    # The step finds that again, and refuses the member.
                    continue
                names = [
                    each.name async for each in pace.paced(topics) if compiled.fullmatch(each.name)
                ]
                known = (revision, frozenset(names))
            self._remember(pattern, known)
            found[pattern] = known[1]
            if may_see is not None:
                seen = [name async for name in pace.paced(known[1]) if may_see(name)]
                found[pattern] = frozenset(seen)
        return Matches(revision, found)

    def _remember(self, pattern: str, known: tuple[int, frozenset[str]]) -> None:
        self._remembered[pattern] = known
        self._remembered.move_to_end(pattern)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Returns the names that match completely.

    Raises:
        InvalidPattern: the pattern is invalid, or needs too much memory.
    """
    compiled = compiled_pattern(pattern)
    return frozenset(name for name in names if compiled.fullmatch(name))
