"""Offline merge in tests: the merger of `KeyValueMachine`, and a child that is simulated in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from replog.checkpoints import PART, Checkpoint, checkpoint_name
from replog.offline_merge.merge import merge
from replog.offline_merge.merger import Lookup, named_merger
from replog.offline_merge.plan import MergePlan
from storage.files.errors import StorageError
from tests.harness.memory_fs import MemoryFileSystem

MERGER = "tests.harness.replog_merging:KeyValueMerger"


class KeyValueMerger:
    """The last value of each key, None for a removal."""

    def __init__(self, lookup: Lookup) -> None:
        self.values: dict[bytes, bytes | None] = {}

    def add(self, index: int, command: bytes) -> None:
        key, is_put, value = command.partition(b"=")
        self.values[key] = value if is_put else None

    def keys(self) -> Iterable[bytes]:
        return self.values

    def value_after(self, key: bytes, before: bytes | None) -> bytes | None:
        return self.values.get(key, before)


class ChildDied(Exception):
    """The simulated child was killed during a disk operation."""


class SimulatedChild:
    """A child that does its work on a simulated disk, one step at a time, and may die in between."""

    def __init__(
        self,
        disk: MemoryFileSystem,
        plan: MergePlan,
        *,
        operations_left: int | None = None,
        is_careless: bool = False,
    ) -> None:
        """Begin to merge.

        Args:
            operations_left: the disk operation with which the child dies; None: it does not.
            is_careless: whether it says that its file is whole, and has lost the end of it.
        """
        self.disk = disk
        self.path = f"{plan.directory}/{checkpoint_name(plan.snapshot)}{PART}"
        self.is_careless = is_careless
        self.operations_left = operations_left
        self.problem: str | None = None
        self.is_closed = False
        self.work: Generator[None, None, Checkpoint] = merge(disk, plan, named_merger(plan.merger))

    def step(self) -> bool:
        assert not self.is_closed
        if self.problem is not None:
            return False
        disk = self.disk
        before: Callable[[str, str], None] | None = disk.on_operation

        def operated(action: str, path: str) -> None:
            if before is not None:
                before(action, path)
            self.operated()

        disk.on_operation = operated
        try:
            return self._advance()
        except (ChildDied, StorageError) as error:
            self.problem = repr(error)
            return True
        finally:
            # A power cut has replaced the disk's own hook.
            if disk.on_operation is operated:
                disk.on_operation = before

    def _advance(self) -> bool:
        """Do the next step of the work. Returns whether there was one."""
        try:
            next(self.work)
        except StopIteration:
            if self.is_careless:
                self.disk.write_bytes(self.path, self.disk.read_bytes(self.path)[:-1])
            return False
        return True

    def operated(self) -> None:
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left < 0:
                raise ChildDied

    def failure(self) -> str | None:
        return self.problem

    def kill(self) -> None:
        self.problem = self.problem or "killed"

    def close(self) -> None:
        self.is_closed = True
        self.work.close()
