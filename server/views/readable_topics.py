"""What clients can read: the topics, and the views of their last values.

A topic hides a view of the same name. A view exists as long as its topic is compacted. Regular
expressions never match it, and it is listed only if `view.list` says so, so that tools which copy or
count everything do not see each record twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from protocol.wire.error_codes import ErrorCode
from server.topics.topic import Topic, TopicRefused
from server.topics.topics import Topics
from server.views.latest_view import LatestView, has_view, other_id
from storage.threads import any_thread, loop_thread

Readable = Topic | LatestView


@loop_thread
class ReadableTopics:
    """The topics and their views. Keeps nothing: both follow from the topics."""

    __slots__ = ("_is_listed", "_suffix", "_topics")

    def __init__(self, topics: Topics, *, suffix: str, is_listed: bool) -> None:
        """
        Args:
            suffix: what the name of a view ends with (view.suffix); empty: there are no views.
            is_listed: whether lists of topics have views (view.list).
        """
        self._topics = topics
        self._suffix = suffix
        self._is_listed = is_listed

    @property
    def revision(self) -> int:
        """Changes whenever a topic is created, changed or deleted."""
        return self._topics.revision

    @any_thread
    def get(self, name: str) -> Readable | None:
        return self._topics.get(name) or self.view(name)

    def by_id(self, topic_id: uuid.UUID) -> Readable | None:
        topic = self._topics.by_id(topic_id)
        if topic is not None:
            return topic
        source = self._topics.by_id(other_id(topic_id))
        return None if source is None else self._view_of(source)

    @any_thread
    def all(self) -> Sequence[Readable]:
        """Returns everything that can be read by its name."""
        topics = self._topics.all()
        return [*topics, *filter(None, map(self._view_of, topics))]

    @any_thread
    def matchable(self) -> Sequence[Topic]:
        """Returns what regular expressions can match: no views."""
        return self._topics.all()

    def listed(self) -> Sequence[Readable]:
        """Returns what a client gets that asks for all topics."""
        if not self._is_listed:
            return self._topics.all()
        return sorted(self.all(), key=lambda each: each.name)

    @any_thread
    def view(self, name: str) -> LatestView | None:
        """Returns the view of this name; None if there is none, or a topic has the name."""
        source = self._source_of(name)
        if source is None or self._topics.get(name) is not None:
            return None
        return LatestView(name=name, source=source) if has_view(source) else None

    @any_thread
    def read_as(self, name: str) -> Sequence[str]:
        """Returns the names by which a topic is read: its own, and its view's if it has one."""
        view = name + self._suffix
        return (name,) if self.view(view) is None else (name, view)

    @any_thread
    def resource_of(self, name: str) -> str:
        """Returns the name by which ACLs decide: that of a view's topic, otherwise the name itself."""
        view = self.view(name)
        return name if view is None else view.source.name

    @any_thread
    def is_reserved(self, name: str) -> bool:
        """Returns whether no topic of this name may be created without a request to create it: it would
        take the place of a view."""
        return bool(self._suffix) and name.endswith(self._suffix) and name != self._suffix

    def refusal(self, name: str) -> TopicRefused | None:
        """Returns why nothing of this name can be written, created or changed; None if it is no view."""
        view = self.view(name)
        if view is None:
            return None
        source = view.source.name
        return TopicRefused(
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            message=f"{name} is the view of the last values of {source}: it can only be read. Write to"
            f" {source}.",
        )

    @any_thread
    def names_of_views(self, topics: Iterable[str]) -> list[str]:
        """Returns the names that the views of these topics have or had, unless topics have them."""
        if not self._suffix:
            return []
        views = (name + self._suffix for name in topics)
        return [each for each in views if self._topics.get(each) is None]

    @any_thread
    def _view_of(self, topic: Topic) -> LatestView | None:
        return self.view(topic.name + self._suffix) if self._suffix else None

    @any_thread
    def _source_of(self, name: str) -> Topic | None:
        if not self.is_reserved(name):
            return None
        return self._topics.get(name.removesuffix(self._suffix))
