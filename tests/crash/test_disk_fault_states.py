"""Let any one operation of the disk fail, in random histories of a log (`faulty_workload.py`).

KOMPAKT_FAULTS sets how many operations fail in all, KOMPAKT_CRASH_SEED where the seeds begin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import SyncFailed
from storage.log.commits import LogCommits
from storage.log.log_service import LogService
from storage.log.segment_list import SegmentList
from tests.crash.faulty_workload import FaultyWorkload
from tests.harness.memory_fs import MemoryFileSystem

FAULTS = int(os.environ.get("KOMPAKT_FAULTS", "1000"))
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))


def test_no_failed_operation_loses_what_was_acknowledged_or_makes_an_answer_lie(
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults, seed = 0, SEED
    while faults < FAULTS:
        workload = FaultyWorkload(seed)
        try:
            workload.play()
        except Exception as error:
            raise AssertionError(f"seed {seed}, in {workload.what}: {error}") from error
        faults += workload.faults
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{faults} failed operations, seeds {SEED} to {seed - 1}\n")


def believes_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """As if a second fsync, which succeeds, had made up for the first."""
    sync = SegmentList.sync

    def careless(self: SegmentList) -> Offset:
        try:
            return sync(self)
        except SyncFailed:
            for segment in self._unsynced:
                segment.files._sync_failure = None
            return sync(self)

    patch.setattr(SegmentList, "sync", careless)


def believes_the_page_cache_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryFileSystem, "forget_cached", lambda *_: None)


def loses_rolls_that_were_put_off(patch: pytest.MonkeyPatch) -> None:
    """A commit that lacked space forgets what it was to list, and the next one says it is there."""

    def list_rolled(self: LogCommits) -> None:
        self._list.take_rolled()

    patch.setattr(LogCommits, "list_rolls", list_rolled)


def goes_on_after_any_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogService, "fail", lambda *_: None)


@pytest.mark.parametrize(
    "inject",
    [
        believes_a_failed_sync,
        believes_the_page_cache_after_a_failed_sync,
        loses_rolls_that_were_put_off,
        goes_on_after_any_failure,
    ],
)
def test_fault_histories_catch(
    inject: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch)

    def is_caught(seed: int) -> bool:
        try:
            FaultyWorkload(seed).play()
        except Exception:  # noqa: BLE001 - a history that cannot continue has also caught it
            return True
        return False

    assert any(is_caught(seed) for seed in range(1, 101))
