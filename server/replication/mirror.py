"""One mirrored partition: its state with the reason, and its lag. Sole owner of both.

The table of states says what to do (`state_table.py`); `copying.py` does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from protocol.wire.numbers import Offset
from server.client.pauses import MIRROR, Pauses
from server.replication.findings import UNKNOWN, SourceAnswer, Verdict
from server.replication.requests import Fetched
from server.replication.resync import Resync, ResyncFacts, is_complete, progress
from server.replication.slot_content import SlotContent
from server.replication.state_table import (
    MIRROR_STATES,
    Action,
    Event,
    Guard,
    MirrorState,
)
from server.replication.target import Target
from server.replication.tombstones import TombstoneWatch
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

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
    resync: ResyncFacts | None

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
        "asks_without_slot",
        "attempts",
        "cause",
        "copied_bytes",
        "cut_records",
        "failures",
        "has_lost_slot",
        "idle",
        "left_over",
        "log",
        "next_attempt_ms",
        "own",
        "reason",
        "resync",
        "resyncs_completed",
        "resyncs_started",
        "since_ms",
        "skipped_records",
        "slot",
        "slot_ms",
        "source_end",
        "state",
        "turn",
        "writing",
    )

    def __init__(
        self,
        log: PartitionLog,
        *,
        now_ms: Callable[[], int],
        safe_ms: int | None = None,
        pauses: Pauses | None = None,
    ) -> None:
        """
        Args:
            safe_ms: as its slot remembers it (`tombstones.py`).
            pauses: between its attempts; None: those of a mirror of another cluster.
        """
        # Constant after construction
        self.log = log
        self.writing = asyncio.Lock()
        """Held by the writer, so that a promotion waits for the last append."""
        self._now_ms = now_ms
        self._pauses = pauses or Pauses(MIRROR)
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
        self.asks_without_slot = False
        """Whether the source removes nothing, because it is fenced; then no slot has to hold it."""
        self.has_lost_slot = False
        """Whether the source no longer holds tombstones for it."""
        # An empty mirror lacks no tombstone, because it has no older value. The first slot says so,
        # before anything is copied.
        is_new = safe_ms is None and log.log_start_offset == log.log_end_offset
        self.own = Target(log, TombstoneWatch(now_ms() if is_new else safe_ms))
        """Its log as a target, another one after each swap."""
        self.cause: Guard | None = None
        """Why it has failed; None if its disk has."""
        self.resync: Resync | None = None
        self.left_over: PartitionLog | None = None
        """The new copy of a resync that has ended without it: the writer drops it."""
        self.resyncs_started = 0
        self.resyncs_completed = 0
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
    def target(self) -> Target | None:
        """Where the source's answers go: its log, or the new copy of a resync; None until that is
        made."""
        return self.own if self.resync is None else self.resync.target

    @property
    def is_asking(self) -> bool:
        """Whether the next fetch asks for it: only once the source holds its slot, if it has to."""
        asks = self.state in (MirrorState.CHECKING, MirrorState.COPYING, MirrorState.RESYNC)
        is_held = self.slot is not None or self.asks_without_slot
        return asks and is_held and self.target is not None

    def asks_for(self, target: Target) -> bool:
        """Returns whether answers about this target still count."""
        return self.is_asking and self.target is target

    @property
    @any_thread
    def lag(self) -> int:
        """Offsets up to the source's end, as far as it is known."""
        return max(0, self.source_end - self.log.log_end_offset)

    @property
    @any_thread
    def tombstones(self) -> TombstoneWatch:
        """Since when its log lacks no tombstone."""
        return self.own.tombstones

    @property
    def slot_content(self) -> SlotContent:
        """What its slot at the source should say now.

        During a resync the source has to hold what the new copy lacks, and what the log lacks: the copy
        may be dropped.
        """
        end, safe_ms = self.log.high_watermark, self.tombstones.safe_ms
        if self.resync is None:
            return SlotContent(end, self.state, self.reason, safe_ms)
        copy = self.resync.target
        end = Offset(0) if copy is None else min(end, copy.log.high_watermark)
        return SlotContent(end, self.state, self.reason, safe_ms, self.resync.memory)

    def slot_committed(self, now_ms: int, slot: SlotContent, target: Target | None) -> None:
        """Note what the source has, unless the target has changed since the slot was sent."""
        if target is self.target:
            self.slot, self.slot_ms = slot, now_ms
            self.has_lost_slot = False

    def slot_ended(self, reason: str, target: Target | None) -> None:
        """Stop, because the source no longer holds tombstones for it."""
        if target is not self.target:
            return
        self.slot, self.has_lost_slot = None, True
        self.tombstones.forget()
        if target is not None:
            target.tombstones.forget()
        self.answered(Verdict(guard=Guard.MISSED_TOMBSTONES, reason=reason))

    def noted(self, answer: SourceAnswer, target: Target) -> None:
        """Note where the source's log ends, if it says so, before its answer is judged."""
        if not answer.error_code and not answer.error:
            target.note(self._now_ms(), answer.high_watermark)

    def judged(self, fetched: Fetched) -> None:
        """Note an answer that fits."""
        self._judged_ms = self._now_ms()
        if fetched is self.idle:
            return
        is_idle = fetched.has_no_more and fetched.answer.diverging is None
        # Without its records, which are part of the whole answer's frame even if they are empty.
        self.idle = replace(fetched, records=b"", is_alone=False) if is_idle else None

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
        resync, reason = self.resync, verdict.reason
        if self.state is MirrorState.RESYNC and reason:
            reason = f"the resync: {reason}"
        action = self._step(Event.ANSWER, verdict.guard, reason)
        if action is Action.WAIT:
            self.attempts += 1
            self.failures += 1
            self.next_attempt_ms = self._now_ms() + int(1000 * self._pauses.next())
        elif action in (Action.REPORT, Action.DROP):
            # A copy that took too long says nothing new about the log.
            is_old = resync is not None and verdict.guard is Guard.MISSED_TOMBSTONES
            self.cause = resync.cause if resync is not None and is_old else verdict.guard
        return action

    def appended(self) -> None:
        """Note that all that the source sent is in the log, so that the next pause is short again. Not
        before: a full disk may refuse what fits."""
        self.attempts = 0
        self._pauses.reset()

    def happened(self, event: Event, reason: str = "") -> Action:
        """Take any other event, except those of a resync. Returns what to do."""
        resync, guard = self.resync, Guard.ALWAYS
        if event in (Event.DUE, Event.RESUME):
            guard = Guard.NO_COPY if resync is None else Guard.NEW_COPY
        action = self._step(event, guard, reason)
        if action in (Action.CHECK, Action.CONTINUE):
            # Meanwhile the source may have given up its slot: commit it at once, to learn that.
            self.slot_ms = 0
        elif action is Action.REPORT:
            self.cause = None if resync is None else resync.cause
        return action

    # ---------------------------------------------------------------- resync

    def begin_resync(self, cause: Guard, *, puts_aside: bool) -> None:
        """Ask the source for a new copy from now on, once its files are made and its slot is
        committed."""
        self._step(Event.RESYNC, Guard.ALWAYS, "")
        self.resync = Resync(cause=cause, puts_aside=puts_aside, started_ms=self._now_ms())
        self.resyncs_started += 1
        self._ask_afresh()

    def copy_begun(self, resync: Resync, copy: PartitionLog) -> None:
        """Ask for this new copy, which is empty."""
        resync.target = Target(copy, TombstoneWatch(self._now_ms()))
        self._ask_afresh()

    @property
    def has_complete_copy(self) -> bool:
        """Whether the new copy may take the log's place, once it is durable. It is complete before an
        answer only if a full disk has refused the swap, or a pause came in between."""
        copy = None if self.resync is None else self.resync.target
        if copy is None or self.state is not MirrorState.RESYNC or copy.source_end < 0:
            return False
        return is_complete(
            copy_end=copy.log.log_end_offset,
            old_end=self.log.log_end_offset,
            source_end=copy.source_end,
        )

    def swapped(self, copy: Target) -> None:
        """Note that the new copy has taken the log's place, durably."""
        self.own = Target(self.log, copy.tombstones)
        self.resyncs_completed += 1
        self.left_over = None
        if self.resync is None or self.resync.target is copy:
            # Else another one was requested meanwhile.
            self.resync = None
            self._step(Event.SWAPPED, Guard.ALWAYS, "")
        self.slot_ms = 0
        self.idle, self.asks_epoch = None, True

    def _ask_afresh(self) -> None:
        """Commit the slot of the new target before it is asked for."""
        self.slot, self.idle, self.asks_epoch = None, None, True

    def _leave_copy(self) -> None:
        """Let go of the new copy: the log stays as it is."""
        if self.resync is not None and self.resync.target is not None:
            self.left_over = self.resync.target.log
        self.resync = None

    def make_due(self) -> None:
        """Begin the next attempt if its time has come."""
        if self.next_attempt_ms is not None and self._now_ms() >= self.next_attempt_ms:
            self.happened(Event.DUE, self.reason)

    @property
    @any_thread
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
            resync=self._resync_facts(),
        )

    def _resync_facts(self) -> ResyncFacts | None:
        if self.resync is None:
            return None
        return progress(self.resync, self.log.log_end_offset, self.source_end, self._now_ms())

    def _step(self, event: Event, guard: Guard, reason: str) -> Action:
        step = MIRROR_STATES.step(self.state, event, guard)
        if step.action is Action.NOTHING and step.next_state is self.state:
            return step.action
        if step.next_state is not self.state:
            self.state, self.since_ms = step.next_state, self._now_ms()
        if self.state in (MirrorState.FAILED, MirrorState.STOPPED):
            self._leave_copy()
        self.reason = reason
        if self.state not in (MirrorState.RETRYING, MirrorState.UPGRADE_REQUIRED):
            self.next_attempt_ms = None
        return step.action
