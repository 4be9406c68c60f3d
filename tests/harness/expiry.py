"""Expiry sweeps over the log of a test, with a hand in between any two of their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleaner.expiry.sweep import TRIES_MAX, Append, Sweep, SweepPlan
from cleaner.rules.due_ranges import Ranges
from cleaner.rules.expiry_report import ExpiryReport
from protocol.records.record import Headers
from storage.batches.validate import ValidBatch
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CompactedLog, meter_of


def nothing() -> None: ...


def plan_of(log: CompactedLog, ranges: Ranges = ()) -> SweepPlan:
    """Returns the plan of a sweep now."""
    view = log.log.cleaning_view(as_if_rolled=True)
    return SweepPlan(view=view, now_ms=log.now_ms, ranges=ranges)


def sweep(
    log: CompactedLog,
    *,
    plan: SweepPlan | None = None,
    between: Callable[[], None] = nothing,
    append: Append | None = None,
) -> ExpiryReport:
    """Sweep a log, and call `between` between any two steps, where producers may append."""
    plan = plan or plan_of(log)
    meter = meter_of(log.log, plan.view.generation)
    running = Sweep(log.log, plan, log.settings, meter=meter, now_ms=lambda: log.now_ms)
    between()
    while running.next_round():
        between()
        tries = 0
        while running.prepare():
            between()
            tries = 0 if running.append(append or append_to(log)) else tries + 1
            if tries == TRIES_MAX:
                running.give_up()
                break
            between()
    return running.report(0.0)


def append_to(log: CompactedLog) -> Append:
    """Returns how a sweep appends: durable at once, as after a round of group commit."""

    def append(_log: PartitionLog, batch: ValidBatch) -> Appended:
        return log.append_batch(batch)

    return append


def tombstones_in(log: CompactedLog) -> Sequence[tuple[bytes | None, Headers]]:
    """Returns key and headers of each tombstone in the log."""
    return [(record.key, record.headers) for record in log.records() if record.value is None]
