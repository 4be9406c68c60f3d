"""A source with its cleaner, and mirrors that copy it by offsets, lag, and clean for themselves.

The source keeps tombstones and markers from the least slot on, unless a fault is seeded. Whenever a
mirror with a slot has caught up, it must show what was produced: no deleted key, no aborted value, and
no value hidden behind a transaction without an end. Some mirrors copy for a while before they commit
their first slot, as an ordinary group may; one that has missed a tombstone until then is given up.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from random import Random

from cleaner.pacing.meter import CleaningAborted
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.hold import NO_HOLD, Hold
from protocol.records.control_record import ControlType, read_control_type
from protocol.wire.numbers import Offset
from storage.files.errors import SwapRefused
from tests.harness.compacted_log import CONFIG, CompactedLog, read_bytes
from tests.harness.log_builder import headers_in, records_in, run_of
from tests.harness.transactional_producer import TransactionalProducer

KEYS = tuple(b"%d" % number for number in range(12))
RETENTION_MS = 1000

Table = dict[bytes | None, bytes]


class Fault(enum.Enum):
    """A rule that the source's cleaner breaks."""

    NONE = enum.auto()
    NO_HOLD = enum.auto()
    """It knows no slots, only delete.retention.ms."""
    PLANNED_PASSES_WIN = enum.auto()
    """A first slot does not stop the swap of a pass that was planned before."""


class Diverged(Exception):
    """A mirror that has caught up does not show what was produced."""


@dataclass
class Mirror:
    """A copy, with its own cleaner."""

    log: CompactedLog
    slot: Offset | None
    """What it has committed at the source, never above its end; None before its first commit."""
    has_missed: bool = False
    """Whether the source has dropped a tombstone or marker before it had copied it or had a slot."""

    def copy(self, source: CompactedLog) -> None:
        """Copy the source's next batch; at its end also the gap that the source's cleaner has left."""
        end = self.log.log.log_end_offset
        data = read_bytes(source.log, end, 1)
        if not data:
            self.log.log.appender.advance_end(source.log.log_end_offset, now_ms=self.log.now_ms)
        else:
            self.log.log.appender.append_as_follower(run_of(data), now_ms=self.log.now_ms)
        self.log.make_durable()

    def has_caught_up(self, source: CompactedLog) -> bool:
        """Returns whether it has all offsets of the source."""
        return self.log.log.log_end_offset == source.log.log_end_offset


@dataclass
class LaggingMirrors:
    """The whole scene. Each step is drawn from one seed."""

    random: Random
    fault: Fault = Fault.NONE
    produced: Table = field(default_factory=dict)
    mirrors: list[Mirror] = field(default_factory=list)
    planned: CleaningPlan | None = None
    records: int = 0
    checks: int = 0

    def __post_init__(self) -> None:
        self.source = CompactedLog(replace(CONFIG, delete_retention_ms=RETENTION_MS))
        self.producer = TransactionalProducer(self.source, 7)
        self.mirrors_max = self.random.randint(1, 3)

    def run(self, steps: int) -> None:
        """Take random steps, then let every mirror catch up. Raises Diverged."""
        actions = (
            *(self.produce,) * 4,
            self.produce_transaction,
            *(self.copy,) * 2,
            self.commit_slot,
            self.join,
            self.join_during_a_pass,
            self.leave,
            *(self.plan,) * 3,
            *(self.execute,) * 3,
            self.clean_mirror,
            *(self.wait,) * 3,
        )
        for _ in range(steps):
            self.random.choice(actions)()
        for mirror in self.mirrors:
            while not mirror.has_caught_up(self.source):
                mirror.copy(self.source)
            self.check(mirror)

    @property
    def slots(self) -> list[Offset]:
        return [each.slot for each in self.mirrors if each.slot is not None]

    # ---------------------------------------------------------------- the source

    def produce(self) -> None:
        """Write a value, or delete a key."""
        key, value = self.pair()
        self.source.append((key, value))
        self.note(key, value)

    def produce_transaction(self) -> None:
        """Write two records in a transaction that is then committed or aborted."""
        pairs = [self.pair(), self.pair()]
        for pair in pairs:
            self.producer.send(pair)
        if self.random.random() < 0.5:
            self.producer.commit()
            for key, value in pairs:
                self.note(key, value)
        else:
            self.producer.abort()

    def pair(self) -> tuple[bytes, bytes | None]:
        self.records += 1
        value = None if self.random.random() < 0.6 else b"%d" % self.records
        return self.random.choice(KEYS), value

    def note(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.produced.pop(key, None)
        else:
            self.produced[key] = value

    def plan(self) -> None:
        """Plan a pass, which is executed at some later time."""
        self.source.hold = self.hold()
        self.source.roll()
        self.planned = self.source.plan()

    def hold(self) -> Hold:
        if self.fault is Fault.NO_HOLD or not self.slots:
            return NO_HOLD
        return Hold(offset=min(self.slots), by="a mirror")

    def execute(self) -> None:
        """Execute the planned pass, if there is one."""
        plan, self.planned = self.planned, None
        if plan is not None:
            try:
                report = self.source.execute(plan)
            except (CleaningAborted, SwapRefused):
                # A mirror has committed its first slot since the plan.
                assert self.source.log.generation != plan.view.generation
                return
            dropped = max(
                (each.account.expired_offset_max for each in report.group_reports), default=-1
            )
            for mirror in self.mirrors:
                is_new = mirror.slot is None
                mirror.has_missed |= is_new and dropped >= mirror.log.log.log_end_offset

    def wait(self) -> None:
        """Let time pass, perhaps beyond every delete horizon."""
        ms = self.random.choice((RETENTION_MS // 3, 2 * RETENTION_MS))
        for log in (self.source, *(each.log for each in self.mirrors)):
            log.now_ms += ms

    # ---------------------------------------------------------------- the mirrors

    def join(self) -> None:
        """Add a mirror; half of them commit a slot before they copy."""
        if len(self.mirrors) < self.mirrors_max:
            log = CompactedLog(replace(CONFIG, delete_retention_ms=RETENTION_MS))
            log.now_ms = self.source.now_ms
            mirror = Mirror(log, slot=None)
            self.mirrors.append(mirror)
            if self.random.random() < 0.5:
                self.commit(mirror)

    def join_during_a_pass(self) -> None:
        """Add a mirror whose first slot comes between the plan and the swap of a pass."""
        if len(self.mirrors) < self.mirrors_max:
            mirror = Mirror(CompactedLog(self.source.log.config), slot=None)
            self.mirrors.append(mirror)
            for _ in range(self.random.randint(1, 20)):
                self.copy_one(mirror)
            self.plan()
            self.execute()
            self.wait()
            self.plan()
            self.commit(mirror)
            self.execute()

    def copy_one(self, mirror: Mirror) -> None:
        if not mirror.has_caught_up(self.source):
            mirror.copy(self.source)

    def leave(self) -> None:
        """Remove the mirror that has been there longest, with its slot."""
        if len(self.mirrors) == self.mirrors_max:
            del self.mirrors[0]

    def copy(self) -> None:
        """Let a mirror copy a few batches."""
        if not self.mirrors:
            return
        mirror = self.random.choice(self.mirrors)
        for _ in range(self.random.randint(1, 3)):
            self.copy_one(mirror)
        if mirror.has_caught_up(self.source):
            self.check(mirror)

    def commit_slot(self) -> None:
        """Let a mirror commit its end."""
        if self.mirrors:
            self.commit(self.random.choice(self.mirrors))

    def commit(self, mirror: Mirror) -> None:
        if mirror.slot is None and mirror.has_missed:
            self.mirrors.remove(mirror)
            return
        is_first, mirror.slot = mirror.slot is None, mirror.log.log.log_end_offset
        if is_first and self.fault is not Fault.PLANNED_PASSES_WIN:
            self.source.log.refuse_planned_passes()

    def clean_mirror(self) -> None:
        """Let a mirror's own cleaner run; no one copies the mirror, so nothing is held there."""
        if self.mirrors:
            self.random.choice(self.mirrors).log.clean()

    def check(self, mirror: Mirror) -> None:
        """Compare a mirror that has caught up with what was produced."""
        if mirror.slot is None:
            return
        self.checks += 1
        found = table_of(mirror.log)
        if found != self.produced:
            raise Diverged(f"the mirror shows {found}, produced was {self.produced}")


def table_of(log: CompactedLog) -> Table:
    """Returns the last value of each key that a reader of committed data finds. Raises Diverged."""
    last: dict[bytes | None, tuple[int, bytes | None]] = {}
    pending: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {}
    offset = log.log.log_start_offset
    while data := read_bytes(log.log, offset, 1):
        (header,) = headers_in(data)
        offset = header.next_offset
        records = [(each.offset, each.key, each.value) for each in records_in(data)]
        if header.is_control and records:
            mine = pending.pop(header.producer_id, [])
            is_commit = read_control_type(records[0][1]) is ControlType.COMMIT
            records = mine if is_commit else []
        elif header.is_transactional:
            pending.setdefault(header.producer_id, []).extend(records)
            continue
        for at, key, value in records:
            if at >= last.get(key, (-1, None))[0]:
                last[key] = at, value
    if any(pending.values()):
        raise Diverged("records are hidden behind a transaction without an end")
    return {key: value for key, (_, value) in last.items() if value is not None}
