"""What clients can read: the topics, the views of their last values, and the topics in snapshots.

A topic hides the others of the same name. A view exists as long as its topic is compacted, a topic in a
snapshot as long as the snapshot. Regular expressions never match these, and they are listed only if
`view.list` says so, so that tools which copy or count everything do not see each record twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace

from protocol.wire.error_codes import ErrorCode
from server.topics.topic import Topic, TopicRefused
from server.topics.topics import Topics
from server.views.latest_view import LatestView, has_view, other_id
from server.views.snapshot_topic import SnapshotTopic, is_of_snapshot
from server.views.snapshot_topics import SnapshotTopics
from storage.threads import any_thread, loop_thread

Readable = Topic | LatestView | SnapshotTopic

_UNTIL_DROPPED = "it can only be read. Drop the snapshot with 'kompakt snapshot drop'."


@loop_thread
class ReadableTopics:
    """The topics, their views, and the topics in snapshots. Keeps nothing of these."""

    __slots__ = ("_is_listed", "_suffix", "_topics", "snapshots")

    def __init__(
        self, topics: Topics, snapshots: SnapshotTopics, *, suffix: str, is_listed: bool
    ) -> None:
        """
        Args:
            suffix: what the name of a view ends with (view.suffix); empty: there are no views.
            is_listed: whether lists of topics have views and topics in snapshots (view.list).
        """
        self._topics = topics
        self.snapshots = snapshots
        """The topics in snapshots."""
        self._suffix = suffix
        self._is_listed = is_listed

    @property
    def revision(self) -> int:
        """Changes whenever a topic is created, changed or deleted, or a snapshot is made or dropped."""
        return self._topics.revision + self.snapshots.revision

    @any_thread
    def get(self, name: str) -> Readable | None:
        return self._topics.get(name) or self.view(name) or self.snapshots.get(name)

    async def opened(self, readable: Readable) -> Readable:
        """Returns a topic as it can be read: opens the logs of one in a snapshot."""
        match readable:
            case SnapshotTopic():
                return await self.snapshots.opened(readable)
            case LatestView(source=SnapshotTopic() as source):
                return replace(readable, source=await self.snapshots.opened(source))
            case _:
                return readable

    def by_id(self, topic_id: uuid.UUID) -> Readable | None:
        topic = self._topics.by_id(topic_id)
        if topic is not None:
            return topic
        in_snapshot = self.snapshots.by_id(topic_id)
        if in_snapshot is not None:
            return in_snapshot
        of_view = other_id(topic_id)
        source = self._topics.by_id(of_view) or self.snapshots.by_id(of_view)
        return None if source is None else self._view_of(source)

    @any_thread
    def all(self) -> Sequence[Readable]:
        """Returns everything that can be read by its name."""
        sources: list[Topic | SnapshotTopic] = [*self._topics.all(), *self.snapshots.all()]
        return [*sources, *filter(None, map(self._view_of, sources))]

    @any_thread
    def matchable(self) -> Sequence[Topic]:
        """Returns what regular expressions can match: the topics."""
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
        """Returns the name by which ACLs decide: that of the topic of which a view or a snapshot is,
        otherwise the name itself."""
        match self.get(name):
            case (
                SnapshotTopic(source_name=topic)
                | LatestView(source=SnapshotTopic(source_name=topic))
            ):
                return topic
            case LatestView(source=source):
                return source.name
            case _:
                return name

    @any_thread
    def is_reserved(self, name: str) -> bool:
        """Returns whether no topic of this name may be created without a request to create it: it would
        take the place of a view, or of a topic in a snapshot."""
        return is_of_snapshot(name) or self._ends_like_a_view(name)

    @any_thread
    def _ends_like_a_view(self, name: str) -> bool:
        return bool(self._suffix) and name.endswith(self._suffix) and name != self._suffix

    def refusal(self, name: str) -> TopicRefused | None:
        """Returns why nothing of this name can be written, created or changed; None if it is neither a
        view nor a topic in a snapshot."""
        match self.get(name):
            case LatestView(source=Topic() as source):
                return _read_only(
                    f"{name} is the view of the last values of {source.name}: it can only be read."
                    f" Write to {source.name}."
                )
            case SnapshotTopic(source_name=topic):
                return _read_only(f"{name} is {topic} as it was in a snapshot: {_UNTIL_DROPPED}")
            case LatestView(source=SnapshotTopic(source_name=topic)):
                return _read_only(
                    f"{name} has the last values of {topic} in a snapshot: {_UNTIL_DROPPED}"
                )
            case _:
                return None

    @any_thread
    def names_of_views(self, topics: Iterable[str]) -> list[str]:
        """Returns the names that the views of these topics have or had, unless topics have them."""
        if not self._suffix:
            return []
        views = (name + self._suffix for name in topics)
        return [each for each in views if self._topics.get(each) is None]

    @any_thread
    def _view_of(self, topic: Topic | SnapshotTopic) -> LatestView | None:
        return self.view(topic.name + self._suffix) if self._suffix else None

    @any_thread
    def _source_of(self, name: str) -> Topic | SnapshotTopic | None:
        if not self._ends_like_a_view(name):
            return None
        source = name.removesuffix(self._suffix)
        return self._topics.get(source) or self.snapshots.get(source)


def _read_only(message: str) -> TopicRefused:
    return TopicRefused(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, message=message)
