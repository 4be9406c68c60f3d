"""A workload whose disk fails now and then: no answer lies, and nothing acknowledged is lost.

In some steps one operation of the disk fails, whichever it is. A step that raises has changed nothing,
unless the log is out of service since: then it may have happened or not, the log refuses everything,
and the process ends, with or without the machine. A start may fail as well, and is tried again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from copy import deepcopy

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import LogOffline, StorageError
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation
from tests.crash.expected import check_content, check_files, check_keys, read_content
from tests.crash.workload import Workload
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import Loss

NUMBERS = (errno.EIO, errno.ENOSPC)


class FaultyWorkload(Workload):
    """One history on a disk that fails."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, lambda _action, _path: None)
        self.faults = 0
        """How many operations of the disk have failed so far."""

    def take(self, step: Callable[[], None]) -> None:
        """Take one step, on a disk of which one operation may fail meanwhile."""
        before = (self.records.copy(), self.start, self.synced_end, self.changes)
        transactions = deepcopy(self.transactions)
        faults = self.disk.faults
        if self.random.random() < 0.4:
            faults.fail_nth(self.random.randrange(1, 14), self.random.choice(NUMBERS))
        try:
            step()
        except StorageError:
            if self.log.offline_reason is None:
                # It is in service, so nothing has happened.
                self.records, self.start, self.synced_end, self.changes = before
                self.transactions, self.other = transactions, None
        finally:
            faults.heal()
            self.faults += faults.raised
            faults.raised = 0
        if self.log.offline_reason is not None:
            self._end_of_service()
        else:
            self._check_service()

    def restart(self) -> None:
        """A stop in order is one only if all that waited in the background went well."""
        self.background.run_all()
        if self.log.offline_reason is None:
            super().restart()

    def _check_service(self) -> None:
        """What is served is what was acknowledged, and not more than the log has."""
        assert not self.home.failures
        high_watermark = self.log.high_watermark
        assert self.synced_end <= high_watermark
        served = {at: each for at, each in self.records.items() if at < high_watermark}
        assert read_content(self.log) == served
        self.transactions.check(self.log, served)

    def _end_of_service(self) -> None:
        """The log refuses everything from here on; what a crash leaves now is what was promised."""
        with pytest.raises(LogOffline):
            self.log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=self.now_ms)
        with pytest.raises(LogOffline):
            self.log.reader.read(
                Offset(0), max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
            )
        self.background.run_all()
        for loss in Loss:
            home = LogHome(self.disk.after_crash(loss, self.crash_random))
            log = home.open(epoch=self.epoch + 1, now_ms=self.now_ms)
            self._check_recovered(log)
            check_files(home, log)
            check_keys(home, log)
        self.home.failures.clear()
        self.random.choice([self.crash_and_go_on, self.end_process_and_go_on])()

    def _check_recovered(self, log: PartitionLog) -> None:
        content = check_content(log, self.possible())
        self.transactions.check(log, content)

    def _reopen(self, *, is_clean: bool) -> None:
        self.epoch += 1
        faults = self.disk.faults
        if self.random.random() < 0.3:
            faults.fail_nth(self.random.randrange(1, 30), self.random.choice(NUMBERS))
        try:
            self.log = self.home.open(epoch=self.epoch, is_clean=is_clean, now_ms=self.now_ms)
        except StorageError:
            faults.heal()
            self.disk.forget_cached("/data")
            super()._reopen(is_clean=False)
        faults.heal()
