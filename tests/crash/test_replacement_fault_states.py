"""Let any one operation of the disk fail in random histories in which copies replace a log.

A replacement that raises has changed nothing, and can be tried again, or the log is out of service; then
a crash leaves the old log or the copy. KOMPAKT_FAULTS and KOMPAKT_CRASH_SEED are as in
`test_disk_fault_states.py`.
"""

from __future__ import annotations

import os
import sys

import pytest

from storage.files.errors import LinksRefused, NoSpace
from storage.log.log import PartitionLog
from tests.crash.faulty_workload import NUMBERS, FaultyWorkload
from tests.crash.replacing_workload import ReplacingWorkload
from tests.harness.copied_log import CopiedLog, drop_copy, seen_of

FAULTS = int(os.environ.get("KOMPAKT_FAULTS", "2000")) // 4
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))


class FaultyReplacingWorkload(FaultyWorkload, ReplacingWorkload):
    """One history on a disk that fails."""

    retried = 0

    def replace(self) -> None:
        try:
            super().replace()
        except Exception:
            self.disk.faults.heal()
            if self.log.offline_reason is None:
                self.copy = None
                drop_copy(self.home)
                self.check_beside(self.disk)
            raise

    def _swap_in(self, copy: CopiedLog) -> None:
        faults = self.disk.faults
        faults.heal()
        if self.random.random() < 0.7:
            faults.fail_nth(self.random.randrange(1, 40), self.random.choice(NUMBERS))
        try:
            super()._swap_in(copy)
        except (NoSpace, LinksRefused):
            if self.log.offline_reason is not None:
                raise
            assert seen_of(copy.log) == self.copy_seen
            self.retried += 1
            faults.heal()
            super()._swap_in(copy)
        finally:
            faults.heal()

    def _reopen(self, *, is_clean: bool) -> None:
        super()._reopen(is_clean=is_clean)
        self.find_out_what_was_left()

    def _check_recovered(self, log: PartitionLog) -> None:
        if self.copy is None:
            super()._check_recovered(log)
        else:
            self.check_recovered(log)


def test_a_failed_operation_leaves_the_old_log_or_the_copy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults, replaced, retried, seed = 0, 0, 0, SEED
    while faults < FAULTS:
        workload = FaultyReplacingWorkload(seed)
        try:
            workload.play()
        except Exception as error:
            raise AssertionError(f"seed {seed}, in {workload.what}: {error}") from error
        faults += workload.faults
        replaced += workload.replaced
        retried += workload.retried
        seed += 1
    with capsys.disabled():
        sys.stdout.write(
            f"\n{faults} failed operations, {replaced} replacements, {retried} at the second try,"
            f" seeds {SEED} to {seed - 1}\n"
        )
    assert retried > 0
