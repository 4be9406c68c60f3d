"""One mirrored partition: its state with the reason, and its lag. Sole owner of both.

The table of states says what to do (`state_table.py`); `copying.py` does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from server.client.pauses import MIRROR, Pauses
from server.replication.divergence import Place
from server.replication.findings import UNKNOWN, SourceAnswer, Verdict
from server.replication.requests import Fetched
from server.replication.slot_content import SlotContent
from server.replication.state_table import (
    MIRROR_STATES,
    Action,
    Event,
    Guard,
    MirrorState,
)
from server.replication.tombstones import TombstoneWatch
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread

JUDGE_EVERY_MS = 5_000
"""How often an answer is judged that only repeats that there is nothing new: a thousand idle mirrors get
two thousand of them a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFacts:
    """What people see of a mirrored partition."""

    partition: TopicPartition
    state: MirrorState
    since_ms: int
    """When it got this state, as wall time."""
    reason: str
    end: int
    synced_end: int
    """Up to where it survives a crash; committed at the source as the link's slot."""
    source_end: int
    """The source's high watermark at the last answer; -1 before the first one."""
    lag: int
    """Offsets up to the source's end. A compacted source has fewer records than that."""
    attempts: int
    """Failed attempts since the last success."""
    next_attempt_ms: int | None
    cut_records: int
    """Offsets that were cut off since the start, because the logs diverged."""
    skipped_records: int
    """Offsets that the source deleted before they were copied."""

    def as_json(self) -> dict[str, object]:
        """Returns the facts for programs."""
        content = asdict(self)
        partition = content.pop("partition")
        return {"topic": partition["topic"], "partition": partition["partition"], **content}


@loop_thread
class Mirror:
    """The copy of one partition."""

    __slots__ = (
        "_judged_ms",
        "_now_ms",
        "_pauses",
        "asks_epoch",
        "attempts",
        "copied_bytes",
        "cut_records",
        "failures",
        "has_lost_slot",
        "idle",
        "log",
        "next_attempt_ms",
        "reason",
        "since_ms",
        "skipped_records",
        "slot",
        "slot_ms",
        "source_end",
        "state",
        "tombstones",
        "turn",
        "writing",
    )

    def __init__(
        self, log: PartitionLog, *, now_ms: Callable[[], int], safe_ms: int | None = None
    ) -> None:
        """
        Args:
            safe_ms: as its slot remembers it (`tombstones.py`).
        """
        # Constant after construction
        self.log = log
        self.writing = asyncio.Lock()
        """Held by the writer, so that a promotion waits for the last append."""
        self._now_ms = now_ms
        self._pauses = Pauses(MIRROR)
        # State
        self.state = MirrorState.CHECKING
        self.since_ms = now_ms()
        self.reason = ""
        self.attempts = 0
        self.next_attempt_ms: int | None = None
        self.source_end = UNKNOWN
        self.slot: SlotContent | None = None
        """What was last committed at the source; None before the first commit."""
        self.slot_ms = 0
        self.has_lost_slot = False
        """Whether the source no longer holds tombstones for it."""
        # An empty mirror lacks no tombstone, because it has no older value. The first slot says so,
        # before anything is copied.
        is_new = safe_ms is None and self.is_empty
        self.tombstones = TombstoneWatch(now_ms() if is_new else safe_ms)
        self.idle: Fetched | None = None
        """The last answer that fitted, if it had nothing new."""
        self._judged_ms = 0
        self.turn = 0
        """Grows each time the source has sent records: the least one is asked for first."""
        self.asks_epoch = True
        """Whether the next fetch says the last epoch. A source that knows no epochs cannot answer it."""
        self.copied_bytes = 0
        self.failures = 0
        """Failed attempts since the start."""
        self.cut_records = 0
        self.skipped_records = 0

    @property
    def is_asking(self) -> bool:
        """Whether the next fetch asks for it: only once the source holds its slot."""
        asks = self.state in (MirrorState.CHECKING, MirrorState.COPYING)
        return asks and self.slot is not None

    @property
    def lag(self) -> int:
        """Offsets up to the source's end, as far as it is known."""
        return max(0, self.source_end - self.log.log_end_offset)

    @property
    def place(self) -> Place:
        """Where its log ends."""
        return Place(
            end=self.log.log_end_offset,
            epochs=self.log.epochs.entries,
            cut_offset_min=self.log.cut_offset_min,
        )

    @property
    def is_empty(self) -> bool:
        """Whether no record was copied yet."""
        return self.log.log_start_offset == self.log.log_end_offset

    @property
    def slot_content(self) -> SlotContent:
        """What its slot at the source should say now."""
        safe_ms = self.tombstones.safe_ms
        return SlotContent(self.log.high_watermark, self.state, self.reason, safe_ms)

    def slot_committed(self, now_ms: int, slot: SlotContent) -> None:
        """Note what the source has."""
        self.slot, self.slot_ms = slot, now_ms
        self.has_lost_slot = False

    def slot_ended(self, reason: str) -> None:
        """Stop, because the source no longer holds tombstones for it."""
        self.slot, self.has_lost_slot = None, True
        self.tombstones.forget()
        self.answered(Verdict(guard=Guard.MISSED_TOMBSTONES, reason=reason))

    def noted(self, answer: SourceAnswer) -> None:
        """Note where the source's log ends, if it says so, before its answer is judged.

        Only the synced end counts for tombstones: after a crash the log may end there.
        """
        if answer.error_code or answer.error:
            return
        self.tombstones.note(
            self._now_ms(),
            source_end=answer.high_watermark,
            end=self.log.high_watermark,
            is_empty=self.is_empty,
        )

    def judged(self, fetched: Fetched) -> None:
        """Note an answer that fits."""
        self._judged_ms = self._now_ms()
        if fetched is self.idle:
            return
        is_idle = fetched.has_no_more and fetched.answer.diverging is None
        # Without its records, which are part of the whole answer's frame even if they are empty.
        self.idle = replace(fetched, records=b"") if is_idle else None

    def repeats(self, fetched: Fetched) -> bool:
        """Returns whether an answer says what the last one said: nothing new."""
        return fetched is self.idle and self.state is MirrorState.COPYING

    def is_level_as_before(self, fetched: Fetched) -> bool:
        """Returns whether an answer is the idle one of a short time ago, and the mirror has everything.
        Then there is nothing to judge, unless something else has changed, such as the source's topic: so
        it is judged now and then."""
        answer = fetched.answer
        return (
            self.repeats(fetched)
            and answer.high_watermark == self.log.high_watermark == self.log.log_end_offset
            and 0 <= self._now_ms() - self._judged_ms < JUDGE_EVERY_MS
        )

    def answered(self, verdict: Verdict) -> Action:
        """Take the source's answer. Returns what to do."""
        action = self._step(Event.ANSWER, verdict.guard, verdict.reason)
        if action is Action.APPEND:
            self.attempts = 0
            self._pauses.reset()
        elif action is Action.WAIT:
            self.attempts += 1
            self.failures += 1
            self.next_attempt_ms = self._now_ms() + int(1000 * self._pauses.next())
        return action

    def happened(self, event: Event, reason: str = "") -> Action:
        """Take any other event. Returns what to do."""
        action = self._step(event, Guard.ALWAYS, reason)
        if action is Action.CHECK:
            # Meanwhile the source may have given up its slot: commit it at once, to learn that.
            self.slot_ms = 0
        return action

    def make_due(self) -> None:
        """Begin the next attempt if its time has come."""
        if self.next_attempt_ms is not None and self._now_ms() >= self.next_attempt_ms:
            self.happened(Event.DUE, self.reason)

    @property
    def lag_ms(self) -> int:
        """Since when it lacks something that the source had, in milliseconds; 0 if it lacks nothing."""
        safe_ms = self.tombstones.safe_ms
        if not self.lag:
            return 0
        return self._now_ms() - (self.since_ms if safe_ms is None else safe_ms)

    def facts(self) -> MirrorFacts:
        """Returns what people see."""
        end = self.log.log_end_offset
        return MirrorFacts(
            partition=self.log.topic_partition,
            state=self.state,
            since_ms=self.since_ms,
            reason=self.reason,
            end=end,
            synced_end=self.log.high_watermark,
            source_end=self.source_end,
            lag=self.lag,
            attempts=self.attempts,
            next_attempt_ms=self.next_attempt_ms,
            cut_records=self.cut_records,
            skipped_records=self.skipped_records,
        )

    def _step(self, event: Event, guard: Guard, reason: str) -> Action:
        step = MIRROR_STATES.step(self.state, event, guard)
        if step.action is Action.NOTHING and step.next_state is self.state:
            return step.action
        if step.next_state is not self.state:
            self.state, self.since_ms = step.next_state, self._now_ms()
        self.reason = reason
        if self.state not in (MirrorState.RETRYING, MirrorState.UPGRADE_REQUIRED):
            self.next_attempt_ms = None
        return step.action
