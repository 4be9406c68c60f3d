"""Expiry sweeps over the log of a test, with a hand in between any two of their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleaner.expiry.sweep import TRIES_MAX, Sweep, SweepPlan
from cleaner.rules.due_ranges import Ranges
from cleaner.rules.expiry_report import ExpiryReport
from storage.batches.validate import ValidBatch
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CompactedLog, meter_of


def nothing() -> None: ...


def sweep(
    log: CompactedLog, *, ranges: Ranges = (), between: Callable[[], None] = nothing
) -> ExpiryReport:
    """Sweep a log, and call `between` between any two steps, where producers may append."""
    plan = SweepPlan(
        view=log.log.cleaning_view(as_if_rolled=True), now_ms=log.now_ms, ranges=ranges
    )
    meter = meter_of(log.log, plan.view.generation)
    running = Sweep(log.log, plan, log.settings, meter=meter, now_ms=lambda: log.now_ms)
    between()
    while running.next_round():
        between()
        tries = 0
        while running.prepare():
            between()
            tries = 0 if running.append(append_to(log)) else tries + 1
            if tries == TRIES_MAX:
                running.give_up()
                break
            between()
    return running.report(0.0)


def append_to(log: CompactedLog) -> Callable[[PartitionLog, ValidBatch], Appended]:
    """Returns how a sweep appends: at once durable, as after a round of group commit."""

    def append(_log: PartitionLog, batch: ValidBatch) -> Appended:
        return log.append_batch(batch)

    return append


def tombstones_in(log: CompactedLog) -> Sequence[tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]]:
    """Returns key and headers of each tombstone in the log."""
    return [(record.key, record.headers) for record in log.records() if record.value is None]
