"""The topics that a group's members are subscribed to: by name, or by a regular expression.

An expression is matched when the first member brings it, and again when topics have changed since, as
the client of the heartbeat sees them (so does Kafka). The records of the group keep the matches.

Pure, like the group. Source: Apache Kafka, GroupMetadataManager.java (maybeUpdateRegularExpressions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.coordination.groups.consumer.state import ConsumerState
from server.coordination.groups.consumer.topic_catalog import TopicCatalog, metadata_hash
from server.coordination.groups.consumer.topic_patterns import matching
from server.coordination.groups.events import Beat


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChanges:
    """How the group's topics differ from those at the start of its epoch."""

    has_changes: bool = False
    matches: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The new matches of the expressions that now match other topics."""


class SubscribedTopics:
    """Compares the topics of one group with those that exist. Changes no state that records describe."""

    __slots__ = ("_data", "_revision", "_topics")

    def __init__(self, data: ConsumerState, topics: TopicCatalog) -> None:
        # Constant after construction
        self._data = data
        self._topics = topics
        # State that is not in any record
        self._revision: int | None = None
        """Revision of the topics when they were last compared."""

    @property
    def is_current(self) -> bool:
        """Whether no topic has changed since the last comparison."""
        return self._revision == self._topics.revision

    def over(self, data: ConsumerState, topics: TopicCatalog) -> SubscribedTopics:
        """Returns the comparison of a copy of the group, as far as this one has come."""
        copy = SubscribedTopics(data, topics)
        copy._revision = self._revision
        return copy

    def matches(self, regex: str, beat: Beat) -> frozenset[str]:
        """Returns the topics that a member's regular expression matches. Raises InvalidPattern."""
        known = self._data.regexes.get(regex)
        if known is not None or not regex:
            return known or frozenset()
        return self._visible_matches(regex, beat)

    def _visible_matches(self, regex: str, beat: Beat) -> frozenset[str]:
        """Returns the topics that an expression matches and the client may describe."""
        ahead = None if beat.matches is None else beat.matches.by_pattern.get(regex)
        if ahead is not None:
            return ahead
        found = matching(regex, (topic.name for topic in self._topics.matchable()))
        return found if beat.may_see is None else frozenset(filter(beat.may_see, found))

    def patterns_to_match(self, beat: Beat) -> frozenset[str]:
        """Returns the expressions that a heartbeat would match against all topics."""
        found = set() if self.is_current else set(self._data.regexes)
        if beat.topic_regex and beat.topic_regex not in self._data.regexes:
            found.add(beat.topic_regex)
        return frozenset(found)

    def changes(self, beat: Beat) -> TopicChanges:
        """Compare the group's topics with those at the start of its epoch, unless that is done."""
        if self.is_current:
            return TopicChanges()
        if beat.classic is not None and self._data.regexes:
            # A JoinGroup does not say what its client may see: the next heartbeat looks at the patterns.
            return TopicChanges(has_changes=self.hash() != self._data.metadata_hash)
        # If topics have changed since the patterns were matched, the next heartbeat looks again.
        self._revision = self._topics.revision if beat.matches is None else beat.matches.revision
        changed = self._changed_matches(beat)
        has_changes = bool(changed) or self.hash() != self._data.metadata_hash
        return TopicChanges(has_changes=has_changes, matches=changed)

    def _changed_matches(self, beat: Beat) -> dict[str, frozenset[str]]:
        known = self._data.regexes
        found = {regex: self._visible_matches(regex, beat) for regex in known}
        return {regex: each for regex, each in found.items() if each != known[regex]}

    def hash(self) -> int:
        """Returns the hash of the topics that the members are subscribed to now."""
        return metadata_hash(self._data.subscriptions, self._topics)
