"""Stops a workload at every operation of its disk, and recovers what a crash then leaves.

After each operation the machine "loses power" in two ways: one that tears what was not synced, and one
that loses all of it, some or nothing. Two states an operation: the more histories, the more
different ones.
"""

from __future__ import annotations

import contextlib

from storage.log import PartitionLog
from storage.producer_state import Duplicate
from tests.crash.expected import Content, check_content, check_epochs, check_files, read_content
from tests.crash.workload import Workload
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import Loss, MemoryFileSystem


class Failed(AssertionError):
    """A crash state from which recovery went wrong; the message has all to replay it."""


class EnoughStates(Exception):
    """As many states as were asked for have been recovered."""


class Sweep:
    """The crash states of one history."""

    def __init__(self, seed: int, *, states_max: int) -> None:
        self.seed = seed
        self.states_max = states_max
        self.states = 0
        self.workload = Workload(seed, self._crash)

    def run(self) -> int:
        """Play the history, crashing at every operation; how many states were recovered."""
        with contextlib.suppress(EnoughStates):
            self.workload.play()
        return self.states

    def _crash(self, action: str, path: str) -> None:
        work = self.workload
        for loss in (Loss.TORN, work.crash_random.choice(tuple(Loss))):
            if self.states >= self.states_max:
                raise EnoughStates
            self.states += 1
            left = work.disk.after_crash(loss, work.crash_random)
            try:
                self._check(left, nested=self.states % 16 == 0)
            except Exception as error:
                raise Failed(
                    f"seed {self.seed}, state {self.states}: {work.what}, {loss.name} lost after"
                    f" {action} {path}: {type(error).__name__}: {error}"
                ) from error

    def _check(self, left: MemoryFileSystem, *, nested: bool) -> None:
        work = self.workload
        home = LogHome(left)
        if nested:
            left.on_operation = lambda _a, _p: self._check_again(left)
        log = home.open(epoch=work.epoch + 1, now_ms=work.now_ms)
        left.on_operation = None
        content = self._check_log(log)
        assert not home.failures, home.failures
        check_files(home, log)
        # Whatever was recovered is safe, and recovering it again finds the same.
        again = LogHome(left.after_crash(Loss.EVERYTHING, work.crash_random))
        log_again = again.open(epoch=work.epoch + 2, now_ms=work.now_ms)
        assert log_again.log_end_offset == log.log_end_offset
        assert read_content(log_again) == content

    def _check_again(self, left: MemoryFileSystem) -> None:
        """A crash in the middle of a recovery."""
        again = LogHome(left.after_crash(Loss.TORN, self.workload.crash_random))
        self._check_log(again.open(epoch=self.workload.epoch + 1, now_ms=self.workload.now_ms))

    def _check_log(self, log: PartitionLog) -> Content:
        content = check_content(log, self.workload.possible())
        check_epochs(log)
        self._check_producers(log)
        return content

    def _check_producers(self, log: PartitionLog) -> None:
        """The last batch of each producer that is still in the log is known as a duplicate."""
        if self.workload.what.startswith("truncate"):
            return
        for producer, sent in self.workload.sent.items():
            there = [(header, at) for header, at in sent if at < log.log_end_offset]
            if there:
                header, at = there[-1]
                assert log.producers.judge(header) == Duplicate(at, at + header.record_count - 1), (
                    f"producer {producer} is not known with its batch at {at}"
                )


def caught(*, ignores_directory_sync: bool = False, seed: int = 1) -> bool:
    """Whether some history of the first few shows that something is wrong."""
    for number in range(seed, seed + 20):
        sweep = Sweep(number, states_max=2000)
        sweep.workload.disk.ignores_directory_sync = ignores_directory_sync
        try:
            sweep.run()
        except Failed:
            return True
    return False
