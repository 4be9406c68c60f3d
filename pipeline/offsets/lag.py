"""Commits a stream's progress to a consumer group, where Kafka's tools look for it.

Spark keeps a query's offsets in its checkpoint and commits none, so its lag is not visible outside.
After each micro-batch a listener commits the end offsets of the batch. Spark reports a batch only
after its sink has taken it, so the table holds everything below a committed offset; the query continues
from its checkpoint and never reads the group. A failed commit is reported and does not stop the query.

The group must have no members, because a broker refuses these commits beside them.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

Offsets: TypeAlias = Mapping[tuple[str, int], int]
"""(Topic, partition) -> the next offset to read."""

COMMIT_SECONDS_MAX = 10
END_SECONDS_MAX = 30
REPEAT_SECONDS = 600.0
"""Repeat commits after this time: a broker expires the offsets of a group without commits for
`offsets.retention.minutes`."""


class CommitFailed(Exception):
    """The broker refused a commit. The message says why."""


class GroupCommits(Protocol):
    """A consumer group that takes commits of progress."""

    def commit(self, offsets: Offsets) -> None:
        """Commit these offsets. Raises CommitFailed."""


@contextlib.contextmanager
def committing(
    session: SparkSession,
    group: str,
    options: Mapping[str, str],
    *,
    held: Offsets = MappingProxyType({}),
    say: Callable[[str], None],
) -> Iterator[None]:
    """Commit the progress of queries started within this context to `group`, until they end.

    Args:
        options: those of Spark's Kafka source; options with the prefix `kafka.` go to its client.
        held: the offsets that the table already holds; committed first.
        say: called with a message when commits begin to fail, and when they work again.
    """
    commits = KafkaGroup(session, group, options)
    listener = ProgressCommits(commits, say)
    listener.commit(held)
    session.streams.addListener(listener)
    try:
        yield
    finally:
        listener.wait_for_ends(END_SECONDS_MAX)
        session.streams.removeListener(listener)
        commits.close()


class ProgressCommits(StreamingQueryListener):  # type: ignore[misc]
    """Commits the progress that Spark reports for its queries. Spark calls it from its own thread."""

    def __init__(
        self,
        commits: GroupCommits,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Constant after construction.
        self._commits = commits
        self._say = say
        self._clock = clock
        # State.
        self._offsets: dict[tuple[str, int], int] = {}
        self._committed_at = 0.0
        self._failure: str | None = None
        self._running: set[str] = set()
        self._all_ended = threading.Condition()

    def onQueryStarted(self, event: Any) -> None:
        with self._all_ended:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        self.commit(offsets_of(event.progress.sources))

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets if they are new."""
        if offsets.items() - self._offsets.items() or self._is_due():
            self._offsets.update(offsets)
            self._commit()

    def onQueryIdle(self, event: Any) -> None:
        if self._is_due():
            self._commit()

    def onQueryTerminated(self, event: Any) -> None:
        if self._failure is not None:
            self._commit()
        with self._all_ended:
            self._running.discard(str(event.runId))
            self._all_ended.notify_all()

    def wait_for_ends(self, seconds: float) -> None:
        """Wait until Spark has reported the end of each query, and therefore all its progress."""
        with self._all_ended:
            self._all_ended.wait_for(lambda: not self._running, seconds)

    def _is_due(self) -> bool:
        """Returns whether it is time to repeat the last commit."""
        return self._clock() - self._committed_at >= REPEAT_SECONDS or self._failure is not None

    def _commit(self) -> None:
        if not self._offsets:
            return
        self._committed_at = self._clock()
        try:
            self._commits.commit(self._offsets)
        except CommitFailed as error:
            self._failed(str(error))
        else:
            if self._failure is not None:
                self._say("commits to the group work again")
            self._failure = None

    def _failed(self, reason: str) -> None:
        """Report a failure, but the same reason only once."""
        if reason != self._failure:
            self._say(
                f"the table is kept up to date, but its offsets cannot be committed: {reason}"
            )
        self._failure = reason


def offsets_of(sources: Sequence[Any]) -> Offsets:
    """Returns the end offsets of a micro-batch from its Kafka sources (pure)."""
    ends = [source.endOffset for source in sources if source.description.startswith("Kafka")]
    return {part: offset for end in ends for part, offset in parse_offsets(end).items()}


def parse_offsets(text: str) -> Offsets:
    """Parse Spark's form of offsets: `{"<topic>": {"<partition>": <offset>}}`, or null (pure)."""
    return {
        (topic, int(partition)): offset
        for topic, parts in (json.loads(text) or {}).items()
        for partition, offset in parts.items()
        if offset >= 0
    }


class KafkaGroup:
    """Commits with the Kafka client in Spark's Kafka source, with the same options."""

    __slots__ = ("_admin", "_group", "_jvm")

    def __init__(self, session: SparkSession, group: str, options: Mapping[str, str]) -> None:
        self._jvm = session.sparkContext._jvm
        self._group = group
        properties = self._jvm.java.util.Properties()
        for name, value in client_properties(options).items():
            properties.setProperty(name, value)
        self._admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    def commit(self, offsets: Offsets) -> None:
        """Commit these offsets. Raises CommitFailed."""
        clients = self._jvm.org.apache.kafka
        wanted = self._jvm.java.util.HashMap()
        for (topic, partition), offset in offsets.items():
            part = clients.common.TopicPartition(topic, partition)
            wanted.put(part, clients.clients.consumer.OffsetAndMetadata(offset))
        try:
            self._admin.alterConsumerGroupOffsets(self._group, wanted).all().get()
        except Py4JJavaError as error:
            raise CommitFailed(reason_of(error.java_exception)) from error

    def close(self) -> None:
        with contextlib.suppress(Py4JError):
            self._admin.close(self._jvm.java.time.Duration.ofSeconds(COMMIT_SECONDS_MAX))


def client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the client's part of the source's options, with timeouts for a dead broker (pure)."""
    given = {
        name.removeprefix("kafka."): value
        for name, value in options.items()
        if name.startswith("kafka.")
    }
    milliseconds = str(COMMIT_SECONDS_MAX * 1000)
    return {
        **given,
        "request.timeout.ms": milliseconds,
        "default.api.timeout.ms": milliseconds,
    }


def reason_of(error: Any) -> str:
    """Returns the message of Kafka's client, without the exceptions around it."""
    while error.getCause() is not None:
        error = error.getCause()
    return f"{error.getClass().getSimpleName()}: {error.getMessage()}"
