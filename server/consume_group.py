"""Reads a topic as a member of a group, by kafka-python's consumer; what was printed is committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError

from server.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed, complain
from server.consume_range import Range
from server.consume_records import POLL_MS, opened, polled, reason
from server.record_text import ReadRecord

CLOSE_MS_MAX = 5_000
SESSION_MS = 10_000
"""Shorter than kafka-python's 45 s: whoever types the command again after a crash waits for it."""


class GroupReader:
    """Reads what the group assigns to this member. Close it, or use it in a `with`.

    Where the group has committed nothing it begins at the start, or at the end `from_end`. `ends` is
    how far each partition of the topic is read before this is over.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        ends: Mapping[int, Range],
        *,
        from_end: bool,
        is_committed: bool,
        patience_seconds: float,
    ) -> None:
        # Constant after construction.
        self._topic = topic
        self._group = group
        self._ends = ends
        self._patience_seconds = patience_seconds
        self._consumer = opened(
            bootstrap,
            is_committed=is_committed,
            group_id=group,
            client_id="kompakt-consume",
            session_timeout_ms=SESSION_MS,
            auto_offset_reset="latest" if from_end else "earliest",
        )
        # State.
        self._membership = _Membership()
        self.passed = 0
        """How many records have come."""
        self._consumer.subscribe([topic], listener=self._membership)

    @property
    def planned(self) -> None:
        """Where the group goes on is known only to its members."""

    def read_to_end(self) -> Iterator[list[ReadRecord]]:
        """The records of the partitions that are ours, up to their ends; at times an empty list.

        Raises:
            CommandFailed: the broker refuses, or nothing comes though there is more.
        """
        moved = time.monotonic()
        while not self._is_through():
            records = polled(self._consumer, self._topic)
            yield records
            self.passed += len(records)
            if records:
                moved = time.monotonic()
            elif time.monotonic() > moved + self._patience_seconds:
                raise CommandFailed(EXIT_UNREACHABLE, self._stall())
        self.commit([])

    def follow(self) -> Iterator[list[ReadRecord]]:
        """Everything that is still to come, until it is closed."""
        while True:
            yield polled(self._consumer, self._topic)

    def commit(self, rest: Sequence[ReadRecord]) -> None:
        """Commit all that came but for `rest`, the end of it, which is not wanted.

        Where the group has given our partitions to others meanwhile, these read the records again.
        """
        for record in reversed(rest):
            self._consumer.seek(TopicPartition(self._topic, record.partition), record.offset)
        try:
            self._consumer.commit(timeout_ms=1000 * self._patience_seconds)
        except CommitFailedError:
            complain(f"{self._group} has rebalanced: other members print the last records again")
        except KafkaError as error:
            raise CommandFailed(EXIT_FAILED, f"{self._group}: {reason(error)}") from error

    def _is_through(self) -> bool:
        return self._membership.is_joined and all(
            self._position(part) >= self._ends[part.partition].end
            for part in self._consumer.assignment()
            if part.partition in self._ends
        )

    def _position(self, part: TopicPartition) -> int:
        try:
            return self._consumer.position(part, timeout_ms=POLL_MS) or 0
        except KafkaTimeoutError:
            # Only a poll joins a group anew.
            return 0

    def _stall(self) -> str:
        what = "nothing came" if self._membership.is_joined else "this was no member of it"
        return f"{self._group}: {what} for {self._patience_seconds:g} s: is the broker still there?"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(autocommit=False, timeout_ms=CLOSE_MS_MAX)


class _Membership(ConsumerRebalanceListener):  # type: ignore[misc]
    """Whether the group has told us what is ours, which may be nothing."""

    def __init__(self) -> None:
        self.is_joined = False

    def on_partitions_assigned(self, _: object) -> None:
        self.is_joined = True

    def on_partitions_revoked(self, _: object) -> None:
        self.is_joined = False
