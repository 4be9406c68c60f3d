"""A log that a copy has replaced is the copy, and continues like any log.

Random logs and copies, both with transactions, epochs and the gaps that compaction leaves. After each
replacement clients see what they would have seen of the copy: records, epochs, producers, aborted
transactions, the last stable offset. Then appends, cuts, cleaning passes and restarts follow, and after
each step the log is compared with the model (`tests/crash/replacing_workload.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crash.expected import check_in_order, read_content
from tests.crash.replacing_workload import ReplacingWorkload


class ComparedWorkload(ReplacingWorkload):
    """One history in which each step is checked."""

    def take(self, step: Callable[[], None]) -> None:
        super().take(step)
        high_watermark = self.log.high_watermark
        readable = {at: each for at, each in self.records.items() if at < high_watermark}
        assert read_content(self.log) == readable
        self.transactions.check(self.log, readable)

    def replace(self) -> None:
        super().replace()
        check_in_order(self.home)


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_a_replaced_log_is_the_copy_and_continues(seed: int) -> None:
    ComparedWorkload(seed, lambda _action, _path: None).play()
