"""Turns what the cleaner reports into events for `__compaction_events`."""

from __future__ import annotations

from cleaner.pacing.clock import Clock
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.quarantine import Quarantined
from cleaner.pool.runner import CANCELLED
from cleaner.rules.report import PassReport
from server.events.event import Aborted, Cancelled, Event, Failed, Stalled, Started, completed
from server.events.writer import EventWriter
from server.topics.topic import EVENTS_TOPIC
from storage.formats.topic_partition import TopicPartition
from storage.threads import loop_thread


@loop_thread
class EventProbe(SilentProbe):
    """Offers an event for the start and the end of each pass, and when one stalls.

    Passes over `__compaction_events` have none: each would make the topic dirty again, for ever.
    """

    __slots__ = ("_broker", "_clock", "_started_at", "_writer")

    def __init__(self, writer: EventWriter, *, broker: int, clock: Clock) -> None:
        """`broker`: the broker's id."""
        # Constant after construction
        self._writer = writer
        self._broker = broker
        self._clock = clock
        # State: when each running pass started, in monotonic seconds.
        self._started_at: dict[TopicPartition, float] = {}

    def runs(self, log: TopicPartition) -> bool:
        """Returns whether a pass over a log runs now."""
        return log in self._started_at

    def pass_started(self, topic: str, partition: int) -> None:
        log = TopicPartition(topic, partition)
        self._started_at[log] = self._clock.monotonic()
        self._offer(Started(topic=topic, partition=partition, **self._now()))

    def stalled(self, topic: str, partition: int, seconds: float, phase: str) -> None:
        self._offer(
            Stalled(
                topic=topic,
                partition=partition,
                stalled_seconds=round(seconds, 3),
                phase=phase,
                **self._now(),
            )
        )

    def pass_completed(self, report: PassReport) -> None:
        seconds = self._ended(TopicPartition(report.topic, report.partition))
        self._offer(completed(report, seconds=seconds, **self._now()))

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        kind = Cancelled if reason == CANCELLED else Aborted
        seconds = self._ended(TopicPartition(topic, partition))
        self._offer(
            kind(topic=topic, partition=partition, seconds=seconds, why=reason, **self._now())
        )

    def quarantined(self, entry: Quarantined) -> None:
        log = entry.topic_partition
        if log not in self._started_at:
            return  # A sweep for expired values has failed: it has no events.
        self._offer(
            Failed(
                topic=log.topic,
                partition=log.partition,
                seconds=self._ended(log),
                why=entry.reason,
                kind=entry.kind,
                failures=entry.failures,
                rest_seconds=entry.rest_seconds,
                **self._now(),
            )
        )

    def _ended(self, log: TopicPartition) -> float:
        """Returns how long the pass over a log ran, which has ended."""
        now = self._clock.monotonic()
        return round(now - self._started_at.pop(log, now), 6)

    def _now(self) -> dict[str, int]:
        return {"broker": self._broker, "time_ms": self._clock.now_ms()}

    def _offer(self, event: Event) -> None:
        if event.topic != EVENTS_TOPIC:
            self._writer.offer(TopicPartition(event.topic, event.partition), event)
