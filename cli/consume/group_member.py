"""Reads a topic as a member of a consumer group, with kafka-python. Commits printed records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError

from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed, complain
from cli.base.record_text import ReadRecord
from cli.consume.range import Range
from cli.consume.records import POLL_MS, open_consumer, poll_records, reason

CLOSE_MS_MAX = 5_000
SESSION_MS = 10_000
"""Shorter than kafka-python's 45 s: after a crash, the next run of the command waits this long."""


class GroupReader:
    """Reads the partitions that the group assigns to this member. Use it in a `with` statement.

    Without a committed offset it begins at the start of a partition, or with `from_end` at its end.
    `ends` gives for each partition of the topic the offset at which `read_to_end` stops.
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
        stall_seconds_max: float,
    ) -> None:
        # Constant after construction.
        self._topic = topic
        self._group = group
        self._ends = ends
        self._stall_seconds_max = stall_seconds_max
        self._consumer = open_consumer(
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
        """The number of records read."""
        self._consumer.subscribe([topic], listener=self._membership)

    @property
    def planned(self) -> None:
        """Unknown: the group's members share the partitions, so this member's part is not known."""

    def read_to_end(self) -> Iterator[list[ReadRecord]]:
        """Yield the records of the assigned partitions up to their ends. A list may be empty.

        Raises:
            CommandFailed: the broker refuses, or there is no progress before the end.
        """
        progressed_at = time.monotonic()
        while not self._is_at_end():
            records = poll_records(self._consumer, self._topic)
            yield records
            self.passed += len(records)
            if records:
                progressed_at = time.monotonic()
            elif time.monotonic() > progressed_at + self._stall_seconds_max:
                raise CommandFailed(EXIT_UNREACHABLE, self._stall_error())
        self.commit([])

    def follow(self) -> Iterator[list[ReadRecord]]:
        """Yield new records until the reader is closed."""
        while True:
            yield poll_records(self._consumer, self._topic)

    def commit(self, unread: Sequence[ReadRecord]) -> None:
        """Commit all records read except `unread`, the last ones, which were not printed.

        If the group has assigned these partitions to other members meanwhile, those read the records
        again.
        """
        # Backwards, so each partition ends at its first unread record.
        for record in reversed(unread):
            self._consumer.seek(TopicPartition(self._topic, record.partition), record.offset)
        try:
            self._consumer.commit(timeout_ms=1000 * self._stall_seconds_max)
        except CommitFailedError:
            complain(
                f"{self._group} has rebalanced: other members will read the last records again"
            )
        except KafkaError as error:
            raise CommandFailed(EXIT_FAILED, f"{self._group}: {reason(error)}") from error

    def _is_at_end(self) -> bool:
        return self._membership.is_joined and all(
            self._position(part) >= self._ends[part.partition].end
            for part in self._consumer.assignment()
            if part.partition in self._ends
        )

    def _position(self, part: TopicPartition) -> int:
        try:
            return self._consumer.position(part, timeout_ms=POLL_MS) or 0
        except KafkaTimeoutError:
            # The consumer may have left the group: only the next poll rejoins it.
            return 0

    def _stall_error(self) -> str:
        what = (
            "no records arrived"
            if self._membership.is_joined
            else "the group assigned no partitions"
        )
        return (
            f"{self._group}: {what} for {self._stall_seconds_max:g} s: is the broker still running?"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(autocommit=False, timeout_ms=CLOSE_MS_MAX)


class _Membership(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tracks whether the group has assigned this member its partitions (possibly none)."""

    def __init__(self) -> None:
        self.is_joined = False

    def on_partitions_assigned(self, _: object) -> None:
        self.is_joined = True

    def on_partitions_revoked(self, _: object) -> None:
        self.is_joined = False
