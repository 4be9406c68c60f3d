"""A compacted log that moves its records without a key to a second log on the same disk in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from cleaner.passes.clean import clean
from cleaner.passes.unkeyed import MoveRefused
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.report import PassReport
from cleaner.rules.unkeyed import ORIGIN, with_origin
from protocol.records.record import Record
from protocol.records.record_batch import build_batch
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from storage.log.opening import create_log, open_log
from tests.harness.compacted_log import (
    CONFIG,
    CompactedLog,
    identity,
    meter_of,
    never_stop,
    opening,
    records_of,
)
from tests.harness.log_builder import valid
from tests.harness.memory_fs import MemoryFileSystem

MOVES = replace(
    CONFIG, compaction_unkeyed_records="move", compaction_unkeyed_topic="aside", segment_bytes=300
)
ASIDE = replace(identity("aside", "data/aside/0"), topic_id=uuid.UUID(int=2))
Origin = tuple[int, bytes | None]
"""An offset of the log that a record comes from, and its value."""


class AsideLog:
    """The second log; a `Mover`."""

    def __init__(self, fs: MemoryFileSystem, log: PartitionLog, of: PartitionLog) -> None:
        self.fs = fs
        self.log = log
        self.of = of
        self.now_ms = 0
        self.refuses: Callable[[Sequence[Record]], bool] = lambda _: False

    @classmethod
    def created(cls, fs: MemoryFileSystem, of: PartitionLog) -> AsideLog:
        log = create_log(fs, ASIDE, LogConfig(), opening())
        for path in ("/", "data", "data/aside"):
            fs.sync_directory(path)
        log.new_files.sync()
        log.new_files.mark_safe()
        return cls(fs, log, of)

    @classmethod
    def opened(cls, fs: MemoryFileSystem, of: PartitionLog) -> AsideLog:
        return cls(fs, open_log(fs, ASIDE, LogConfig(), opening(leader_epoch=1)), of)

    def move(self, records: Sequence[Record]) -> None:
        if self.refuses(records):
            raise MoveRefused("a test says so")
        origin, topic_id = self.of.topic_partition, self.of.identity.topic_id
        moved = [
            replace(with_origin(record, origin, topic_id, now_ms=self.now_ms), offset=number)
            for number, record in enumerate(records)
        ]
        self.log.appender.append_as_leader(valid(build_batch(moved)), now_ms=self.now_ms)
        self.log.advance_high_watermark(self.log.sync())

    def origins(self) -> list[Origin]:
        """Where each record comes from, with its value."""
        return [
            (int(dict(record.headers)[f"{ORIGIN}offset"] or b"-1"), record.value)
            for record in records_of(self.log)
        ]


class MovingLog(CompactedLog):
    """A log whose passes move records without a key to `aside`."""

    def __init__(self, config: LogConfig = MOVES) -> None:
        super().__init__(config)
        self.aside = AsideLog.created(self.fs, self.log)

    def unkeyed(self) -> list[Origin]:
        """The records without a key that are left."""
        return [(each.offset, each.value) for each in self.records() if each.key is None]

    def run_pass(
        self, plan: CleaningPlan | None = None, *, stop: Callable[[float], bool] = never_stop
    ) -> PassReport:
        """Roll and clean, as on request, with the mover."""
        if plan is None:
            self.roll()
            plan = self.plan()
        self.aside.now_ms = self.now_ms
        return clean(
            self.log.cleaning,
            plan,
            self.settings,
            meter=meter_of(self.log, plan.view.generation, stop),
            monotonic=lambda: 0.0,
            mover=self.aside,
        )

    def restarted(self, fs: MemoryFileSystem) -> MovingLog:
        """Both logs as they are found on a disk."""
        again = MovingLog.__new__(MovingLog)
        CompactedLog.__init__(again, self.log.config)
        again.fs, again.now_ms = fs, self.now_ms
        again.log = open_log(
            fs, identity(), self.log.config, opening(now_ms=self.now_ms, leader_epoch=1)
        )
        again.aside = AsideLog.opened(fs, again.log)
        return again
