"""Limits that a topic sets for its own passes: how much I/O, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from cleaner.pacing.budget import Budget
from cleaner.rules.pick import WINDOWED, Reason
from storage.formats.compaction_window import is_open
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from storage.threads import any_thread

_WINDOWED_NAMES = frozenset(
    reason.name for reason in (*WINDOWED, Reason.EXPIRY_DUE, Reason.INDEX_AHEAD)
)


def is_out_of_window(reason: str, config: LogConfig, now_ms: int) -> bool:
    """Returns whether a pass that runs for a reason, a name of `pick.Reason`, must stop now. Pure."""
    return reason in _WINDOWED_NAMES and not is_open(config.windows, now_ms)


@any_thread
class TopicBudgets:
    """The I/O budgets of the topics that set one; all passes over a topic share its budget."""

    __slots__ = ("_budgets", "_clock")

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._budgets: dict[str, Budget] = {}

    def of(self, log: PartitionLog) -> Budget | None:
        """Returns the budget for a pass over a log, at the topic's present rate; None if it has none."""
        topic, rate = log.topic_partition.topic, log.config.io_rate
        if math.isinf(rate) and topic not in self._budgets:
            return None
        # One step of the interpreter: passes of one topic may begin at the same time.
        budget = self._budgets.setdefault(topic, Budget(clock=self._clock))
        if budget.bytes_per_second != rate:
            budget.set_rate(rate)
        return budget

    def keep(self, logs: Iterable[PartitionLog]) -> None:
        """Forget the budgets of all topics but those of these logs."""
        topics = {log.topic_partition.topic for log in logs}
        for topic in tuple(self._budgets):
            if topic not in topics:
                self._budgets.pop(topic, None)
