"""A random history of a log that copies replace now and then (`storage/log/replacement.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

from storage.log.log import PartitionLog
from storage.log.on_disk import look_at_log
from tests.crash.expected import Content, Possible, check_content, check_files, read_content
from tests.crash.workload import Workload
from tests.harness.copied_log import CopiedLog, Seen, begin_copy, drop_copy, seen_of
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem

TOPIC = "/data/orders"


class ReplacingWorkload(Workload):
    """One history."""

    def __init__(self, seed: int, observe: Callable[[str, str], None]) -> None:
        super().__init__(seed, observe)
        self.copy: CopiedLog | None = None
        """The copy that is replacing the log; `records` and the rest are still those of the old log."""
        self.copy_seen: Seen | None = None
        self.puts_aside = False
        self.copy_id: UUID | None = None
        """Of the copy that is replacing the log, or has replaced it last."""
        self.log_id: UUID | None = None
        """The log's."""
        self.sources: set[UUID | None] = {None}
        """What a crash may leave of `PartitionLog.copied_from`."""
        self.copy_source: UUID | None = None
        """The same, of the copy that is replacing the log."""
        self.asides: set[str] = set()
        """The logs that were put aside before."""
        self.replaced = 0

    def steps(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().steps(), (self.replace, 12), (self.remember_source, 6)]

    # ---------------------------------------------------------------- the step

    def replace(self) -> None:
        """Fill a copy, and replace the log by it."""
        copy = self._filled_copy()
        self.copy_seen, self.puts_aside = seen_of(copy.log), self.random.random() < 0.5
        self.copy_id = UUID(int=self.replaced + 1)
        self.copy_source = self.random.choice((None, UUID(int=102)))
        self.copy = copy
        self._swap_in(copy)
        drop_copy(self.home)
        self.take_copy()
        assert seen_of(self.log) == self.copy_seen
        assert self.log.clean_offset == self.log.cut_offset_min == self.start
        check_files(self.home, self.log)
        self.copy = None

    def remember_source(self) -> None:
        """Remember one of two sources."""
        name = UUID(int=self.random.randrange(100, 102))
        self.sources.add(name)
        self.log.remember_source(name)
        self.sources = {name}

    def _reopen(self, *, is_clean: bool) -> None:
        super()._reopen(is_clean=is_clean)
        if is_clean:
            self.check_beside(self.disk)
        self.find_out_what_was_left()
        assert self.log.copied_from in self.sources
        self.sources = {self.log.copied_from}

    def find_out_what_was_left(self) -> None:
        """Go by what a crash in the middle of a replacement has left."""
        if self.copy is not None:
            if self.check_recovered(self.log):
                self.take_copy()
            self.copy = None

    def _swap_in(self, copy: CopiedLog) -> None:
        aside = self.log.replace_with(
            copy.log,
            puts_aside=self.puts_aside,
            copy_id=self.copy_id,
            copied_from=self.copy_source,
        )
        assert (aside is not None) == self.puts_aside

    def _filled_copy(self) -> CopiedLog:
        is_observed = self.random.random() < 0.1
        if not is_observed:
            self.disk.on_operation = None
        end = self.log.log_end_offset
        start = self.random.choice([self.start, end, self.random.randrange(end + 4)])
        log = begin_copy(self.home, self.log, start)
        copy = CopiedLog(log, self.random, now_ms=self.now_ms)
        copy.fill(self.random.randrange(16), rest=self._rest)
        self.disk.on_operation = self.observe
        return copy

    def _rest(self) -> None:
        if self.random.random() < 0.3:
            self.background.run_one()

    def take_copy(self) -> None:
        """Go by the contents of the copy: it is the log now."""
        copy = self.copy
        assert copy is not None
        self.records, self.start, self.synced_end = dict(copy.records), copy.start, copy.end
        self.transactions, self.decided_to = copy.transactions, 0
        self.sequences, self.sent = copy.sequences, copy.sent
        self.changes += 1
        self.log_id = self.copy_id
        self.sources = {self.copy_source}
        self.asides |= asides(self.disk)
        self.replaced += 1

    # ---------------------------------------------------------------- what a crash may leave

    def possible(self) -> list[Possible]:
        copy = self.copy
        if copy is None:
            return super().possible()
        old = Possible(self.records, self.start, self.synced_end, self.log_end)
        return [old, Possible(copy.records, copy.start, copy.end, copy.end)]

    def check_recovered(self, log: PartitionLog) -> bool:
        """Check that a log is the old one or the copy, whole. Returns whether it is the copy."""
        disk = log._fs
        assert isinstance(disk, MemoryFileSystem)
        content = check_content(log, self.possible())
        is_copy = self.holds_copy(disk, content, log.log_start_offset, log.log_end_offset)
        assert log.copy_id == (self.copy_id if is_copy else self.log_id)
        assert log.copied_from in ({self.copy_source} if is_copy else self.sources)
        if is_copy:
            assert seen_of(log) == self.copy_seen
            assert log.clean_offset == log.cut_offset_min == log.log_start_offset
        else:
            self.transactions.check(log, content)
        self.check_beside(disk, is_replaced=is_copy)
        return is_copy

    def holds_copy(self, disk: MemoryFileSystem, content: Content, start: int, end: int) -> bool:
        """Whether a recovered log is the copy: its records are, or if it has none, what is beside it."""
        copy = self.copy
        if copy is None or (content, start, end) != (copy.records, copy.start, copy.end):
            return False
        old = {at: each for at, each in self.records.items() if at < end}
        is_old = (content, start) == (old, self.start) and end >= self.synced_end
        return not is_old or asides(disk) != self.asides

    def check_beside(self, disk: MemoryFileSystem, *, is_replaced: bool = False) -> None:
        """What was put aside is there if and only if the log was replaced, and nothing else is."""
        new = asides(disk) - self.asides
        assert self.asides <= asides(disk)
        assert len(new) == (is_replaced and self.puts_aside), (new, is_replaced)
        others = set(disk.list(TOPIC)) - asides(disk)
        assert others == {"0"}, others
        for name in new:
            aside = LogHome(disk, directory=f"{TOPIC}/{name}")
            looked_at = look_at_log(disk, aside.identity)
            assert looked_at is not None
            assert looked_at.end_offset == self.log_end
            for is_clean in (True, False):
                log = aside.open(is_clean=is_clean)
                assert read_content(log) == {
                    at: each for at, each in self.records.items() if at < self.log_end
                }
                assert (log.log_start_offset, log.log_end_offset) == (self.start, self.log_end)
                self.transactions.check(log, self.records)


def asides(disk: MemoryFileSystem) -> set[str]:
    """The directories of logs that were put aside."""
    return {name for name in disk.list(TOPIC) if re.match(r"0\.aside\.\d", name)}
