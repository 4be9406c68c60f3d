"""Stops a workload at every operation of its disk, and recovers what a crash then leaves.

After each operation the machine "loses power" in two ways: one that tears what was not synced, and one
that loses all of it, some or nothing. Two states an operation: the more histories, the more
different ones. In some of them only the process is killed, and the power fails after the recovery.
"""

from __future__ import annotations

import contextlib
from random import Random

from protocol.wire.numbers import Offset
from storage.log.log import PartitionLog
from storage.state.producer_state import Duplicate
from tests.crash.expected import (
    Content,
    check_content,
    check_epochs,
    check_files,
    check_in_order,
    check_keys,
    check_timestamps,
    check_verified,
    read_content,
)
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
        self.nested_states = 0
        """Crashes in the middle of a recovery, which are not among `states`."""
        self.sidecars = 0
        """Key sidecars that recoveries have found, and that are whole."""
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
            is_killed = self.states % 8 == 3
            left = (
                work.disk.after_kill()
                if is_killed
                else work.disk.after_crash(loss, work.crash_random)
            )
            if self.states % 4 == 0:
                damage_indexes(left, work.home.identity.directory, work.crash_random)
            try:
                if self.states % 4 == 1:
                    check_verified(LogHome(left))
                self._check(left, nested=self.states % 32 == 0)
            except Exception as error:
                how = "killed" if is_killed else f"{loss.name} lost"
                raise Failed(
                    f"seed {self.seed}, state {self.states}: {work.what}, {how} after"
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
        self.sidecars += check_keys(home, log)
        if self.states % 8 == 1:
            check_in_order(home)
        # Whatever was recovered is safe, and recovering it again finds the same.
        again = LogHome(left.after_crash(Loss.EVERYTHING, work.crash_random))
        log_again = again.open(epoch=work.epoch + 2, now_ms=work.now_ms)
        assert log_again.log_end_offset == log.log_end_offset
        assert read_content(log_again) == content

    def _check_again(self, left: MemoryFileSystem) -> None:
        """A crash in the middle of a recovery."""
        self.nested_states += 1
        again = LogHome(left.after_crash(Loss.TORN, self.workload.crash_random))
        self._check_log(again.open(epoch=self.workload.epoch + 1, now_ms=self.workload.now_ms))

    def _check_log(self, log: PartitionLog) -> Content:
        content = check_content(log, self.workload.possible())
        check_timestamps(log, content, self.workload.crash_random)
        check_epochs(log)
        self._check_producers(log)
        self.workload.transactions.check(log, content)
        return content

    def _check_producers(self, log: PartitionLog) -> None:
        """The last batch of each producer is known as a duplicate, one that is lost is not."""
        for producer, sent in self.workload.sent.items():
            there = [(header, at) for header, at in sent if at < log.log_end_offset]
            if there and not self.workload.what.startswith("truncate"):
                header, at = there[-1]
                assert log.producers.check_append(header) == Duplicate(
                    Offset(at), Offset(at + header.record_count - 1)
                ), f"producer {producer} is not known with its batch at {at}"
            for header, at in sent[len(there) :]:
                assert not isinstance(log.producers.check_append(header), Duplicate), (
                    f"producer {producer} would believe its lost batch at {at} to be in the log"
                )


def damage_indexes(disk: MemoryFileSystem, directory: str, random: Random) -> None:
    """Let indexes and key sidecars lie: damage that nobody noticed, a backup put back in part."""
    names = [
        name for name in disk.list(directory) if name.endswith(("index", "index.cleaned", "keys"))
    ]
    for name in names:
        path = f"{directory}/{name}"
        data = disk.read_bytes(path)
        match random.randrange(4):
            case 0 if data:
                disk.overwrite(path, random.randrange(len(data)), random.randbytes(1))
            case 1:
                other = random.choice(
                    [
                        each
                        for each in names
                        if each.partition(".")[2].partition(".")[2]
                        == name.partition(".")[2].partition(".")[2]
                    ]
                    or names
                )
                disk.write_bytes(path, disk.read_bytes(f"{directory}/{other}"))
            case 2:
                disk.write_bytes(path, data[: random.randrange(len(data) + 1)])
            case _:
                pass


def caught(first_seed: int) -> bool:
    """Whether some history, that of `first_seed` before others, shows that something is wrong."""
    for seed in (first_seed, *range(16, 60)):
        try:
            Sweep(seed, states_max=2000).run()
        except Exception:  # noqa: BLE001 - a history that cannot continue has also caught it
            return True
    return False
