"""Counts the keys of a `CompactedLog` as the pool does, in the calling thread."""

from __future__ import annotations

from collections.abc import Callable

from cleaner.passes.index_ahead import AheadCounting, CountPlan
from cleaner.rules.reclaimable import Due, KeyCount, Reclaimable, due, has_meaning, what_holds
from tests.harness.compacted_log import CompactedLog, meter_of, never_stop

EVERYTHING = Due(clean=True, dirty=True)


class CountedKeys:
    """What was counted of a log, from one look to the next."""

    def __init__(self, log: CompactedLog) -> None:
        self.log = log
        self.count: KeyCount | None = None
        self.estimate: Reclaimable | None = None
        self._basis: object = None

    def plan(self, what: Due | None = None) -> CountPlan:
        """Returns what to count now: what is due, unless `what` says otherwise."""
        view, assessment = self.log.log.cleaning_view(), self.log.assess()
        first_dirty = assessment.bounds.first_dirty_offset
        count = self.count or KeyCount(first_dirty_offset=first_dirty)
        count = what_holds(count, view.sealed_rows, first_dirty)
        return CountPlan(
            view=view,
            count=count,
            due=due(count, view.sealed_rows, assessment) if what is None else what,
            end_offset=assessment.bounds.first_uncleanable_offset,
        )

    def look(
        self, what: Due | None = None, *, stop: Callable[[float], bool] = never_stop
    ) -> Reclaimable | None:
        """Count what is due. Returns the estimate.

        Raises what ends the count; what was counted until then stays.
        """
        basis = self.log.log, self.log.log.rewrites
        if self._basis != basis:
            self.count, self._basis = None, basis
        if not has_meaning(self.log.log.config, self.log.assess()):
            self.count = self.estimate = None
            return None
        plan = self.plan(what)
        counting = AheadCounting(plan)
        try:
            counting.run(self.log.settings, meter_of(self.log.log, plan.view.generation, stop))
        finally:
            self.count, self.estimate = counting.result()
        return self.estimate
