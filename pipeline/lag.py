"""How far a stream is, where Kafka's tools look for it: committed to a consumer group.

Spark keeps a query's offsets in its checkpoint and commits none, so nobody outside sees its lag.
A listener commits, after each micro-batch, the offsets up to which the batch went. Spark tells of a
batch only after its sink has taken it, so what is committed is in the table; the query goes on from
its checkpoint and never reads the group. A commit that fails stops nothing and is said.

The group must be one of its own, without members: a broker refuses these commits beside them.
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
"""A broker forgets the offsets of a group that is quiet for `offsets.retention.minutes`."""


class CommitFailed(Exception):
    """The broker did not take a commit; the message says why."""


class GroupCommits(Protocol):
    """Where progress goes to."""

    def commit(self, offsets: Offsets) -> None:
        """Raises CommitFailed."""


@contextlib.contextmanager
def committing(
    session: SparkSession,
    group: str,
    options: Mapping[str, str],
    *,
    held: Offsets = MappingProxyType({}),
    say: Callable[[str], None],
) -> Iterator[None]:
    """Commit to `group` how far the queries are that are started within, up to their ends.

    Args:
        options: those of Spark's Kafka source; what begins with `kafka.` is its client's.
        held: what the table holds before; committed first.
        say: takes one sentence when commits begin to fail, and one when they work again.
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
    """Commits what Spark tells of its queries. Spark calls it from one thread of its own."""

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
        """Commit them, if they say anything new."""
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
        """Until Spark has told of the end of each query, and so of all its progress."""
        with self._all_ended:
            self._all_ended.wait_for(lambda: not self._running, seconds)

    def _is_due(self) -> bool:
        """Is it time to say the same again?"""
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
                self._say("offsets are committed to the group again")
            self._failure = None

    def _failed(self, reason: str) -> None:
        """The same reason is said once."""
        if reason != self._failure:
            self._say(f"the table goes on, but its offsets cannot be committed: {reason}")
        self._failure = reason


def offsets_of(sources: Sequence[Any]) -> Offsets:
    """Where a micro-batch ended, of its Kafka sources (pure)."""
    ends = [source.endOffset for source in sources if source.description.startswith("Kafka")]
    return {part: offset for end in ends for part, offset in parse_offsets(end).items()}


def parse_offsets(text: str) -> Offsets:
    """Offsets as Spark writes them: `{"<topic>": {"<partition>": <offset>}}`, or null (pure)."""
    return {
        (topic, int(partition)): offset
        for topic, parts in (json.loads(text) or {}).items()
        for partition, offset in parts.items()
        if offset >= 0
    }


class KafkaGroup:
    """Commits through the Kafka client that Spark's source brings along, with the same options."""

    __slots__ = ("_admin", "_group", "_jvm")

    def __init__(self, session: SparkSession, group: str, options: Mapping[str, str]) -> None:
        self._jvm = session.sparkContext._jvm
        self._group = group
        properties = self._jvm.java.util.Properties()
        for name, value in client_properties(options).items():
            properties.setProperty(name, value)
        self._admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    def commit(self, offsets: Offsets) -> None:
        """Raises CommitFailed."""
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
    """Of the source's options those of its client; a broker that is away holds nobody up (pure)."""
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
    """What Kafka's client said, without the exceptions around it."""
    while error.getCause() is not None:
        error = error.getCause()
    return f"{error.getClass().getSimpleName()}: {error.getMessage()}"
