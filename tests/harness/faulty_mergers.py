"""Mergers that make a child process fail in each way. They run in the child."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from replog.checkpoints import PART, Checkpoint, SnapshotWriter, checkpoint_name
from replog.offline_merge.child import NICENESS
from replog.offline_merge.merger import Lookup
from replog.offline_merge.plan import MergePlan
from tests.harness.replog_merging import KeyValueMerger


def own_plan() -> MergePlan:
    return MergePlan.from_json(sys.argv[1])


def part_of(plan: MergePlan) -> Path:
    return Path(plan.directory) / f"{checkpoint_name(plan.snapshot)}{PART}"


class Killed(KeyValueMerger):
    """Killed while it writes rows."""

    def value_after(self, key: bytes, before: bytes | None) -> bytes | None:
        os.kill(os.getpid(), signal.SIGKILL)
        return None


class Raising(KeyValueMerger):
    """Does not know a command."""

    def add(self, index: int, command: bytes) -> None:
        raise AssertionError("an unknown command in the log")


class Hanging(KeyValueMerger):
    """Never ends by itself, and has closed its errors."""

    def add(self, index: int, command: bytes) -> None:
        os.close(2)
        signal.pause()


class Talkative(KeyValueMerger):
    """Never ends by itself, and writes errors all the time."""

    def add(self, index: int, command: bytes) -> None:
        while True:
            sys.stderr.write("more than anybody reads" * 1000)


class Silent(KeyValueMerger):
    """Says that all is well, and has written nothing."""

    def add(self, index: int, command: bytes) -> None:
        os._exit(0)


class Garbage(KeyValueMerger):
    """Says that all is well, and has written something else."""

    def add(self, index: int, command: bytes) -> None:
        part_of(own_plan()).write_bytes(b"no snapshot" * 100)
        os._exit(0)


class Truncating(KeyValueMerger):
    """Loses the end of its file, and says that all is well."""

    def keys(self) -> list[bytes]:
        finish = SnapshotWriter.finish

        def careless(self: SnapshotWriter) -> Checkpoint:
            finish(self)
            path = part_of(own_plan())
            path.write_bytes(path.read_bytes()[:-1])
            os._exit(0)

        setattr(SnapshotWriter, "finish", careless)  # noqa: B010 - mypy refuses the assignment
        return list(self.values)


class Wrong(KeyValueMerger):
    """Merges wrongly, and notices that the digest differs."""

    def value_after(self, key: bytes, before: bytes | None) -> bytes | None:
        return b"wrong"


class WrongAndSure(Wrong):
    """Merges wrongly, and does not compare the digest."""

    def keys(self) -> list[bytes]:
        finish = SnapshotWriter.finish

        def sure(self: SnapshotWriter) -> Checkpoint:
            self._expected = self._digest
            return finish(self)

        setattr(SnapshotWriter, "finish", sure)  # noqa: B010 - mypy refuses the assignment
        return list(self.values)


class Waiting(KeyValueMerger):
    """Waits with its first command until the parent has ended."""

    def add(self, index: int, command: bytes) -> None:
        parent = select.poll()
        parent.register(sys.stdin.fileno(), select.POLLHUP)
        parent.poll()


class Inspecting(KeyValueMerger):
    """Fails if the child has inherited something, or has the parent's priority."""

    def __init__(self, lookup: Lookup) -> None:
        super().__init__(lookup)
        assert os.nice(0) >= NICENESS
        assert os.getsid(0) == os.getpid()
        directory = own_plan().directory
        for link in Path("/proc/self/fd").iterdir():
            if int(link.name) > 2 and link.exists():
                target = str(link.resolve())
                assert target.startswith((directory, "/proc")), f"inherited {target}"
