"""A compacted log on an in-memory disk, with a clock; tests append to it, roll it and clean it.

Everything runs in the calling thread: the log's background work runs at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random

from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import Throttle
from cleaner.passes.clean import clean
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.cleaning_plan import CleaningPlan, plan_pass, remainder_of
from cleaner.rules.hold import NO_HOLD
from cleaner.rules.pick import NOTHING, Assessment, Remainder, assess
from cleaner.rules.report import PassReport
from protocol.records.batch_header import BatchHeader
from protocol.records.record_batch import Codec, Record
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from storage.batches.validate import ValidBatch
from storage.files.errors import MissingFile
from storage.files.paths import KEYS
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.topic_partition import TopicPartition
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.opening import LogOpening, create_log, open_log
from storage.segment.files import Background
from storage.segment.reader import Isolation
from tests.harness.log_builder import KeyValue, batch_of, headers_in, records_in, valid
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.verification import lies_in

START_MS = 1_700_000_000_000
DIRECTORY = "data/orders/0"
HASH_KEY = bytes(range(16))
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    index_interval_bytes=100,
)
MAY_END = {SidecarMode.DAMAGED: CleaningAborted, SidecarMode.LYING: VerificationFailed}
"""The error with which a pass may end because of a sidecar."""
ATTEMPTS_MAX = 20
SETTINGS = CleanerSettings(dedupe_buffer_size=24 * 10_000)


def identity(topic: str = "orders", directory: str = DIRECTORY) -> LogIdentity:
    return LogIdentity(
        topic_partition=TopicPartition(topic, 0),
        topic_id=uuid.UUID(int=1),
        directory=directory,
        directory_id="AAAAAAAAAAAAAAAAAAAAAg",
        hash_key=HASH_KEY,
    )


def run_at_once(work: Callable[[], None]) -> None:
    """Run background work in the calling thread."""
    work()


def opening(
    *,
    is_clean: bool = False,
    now_ms: int = START_MS,
    leader_epoch: int = 0,
    background: Background = run_at_once,
    clock_ms: Callable[[], int] = lambda: START_MS,
) -> LogOpening:
    """Returns the parameters for opening a log."""
    return LogOpening(
        leader_epoch=Epoch(leader_epoch),
        background=background,
        on_failure=lambda error: None,
        now_ms=now_ms,
        is_clean=is_clean,
        clock_ms=clock_ms,
    )


def never_stop(_seconds: float) -> bool:
    return False


def meter_of(
    log: PartitionLog, generation: int, stop: Callable[[float], bool] = never_stop
) -> PassMeter:
    """Returns the meter for a pass without throttling."""
    return PassMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=stop,
        is_stale=lambda: log.generation != generation,
    )


def records_of(log: PartitionLog, start_offset: int | None = None) -> list[Record]:
    """Returns the records that a reader gets from an offset on, by default from the log start."""
    return list(_each_record(log, log.log_start_offset if start_offset is None else start_offset))


def _each_record(log: PartitionLog, offset: int) -> Iterable[Record]:
    while True:
        data = read_bytes(log, offset)
        if not data:
            return
        yield from (record for record in records_in(data) if record.offset >= offset)
        offset = headers_in(data)[-1].next_offset


def read_bytes(log: PartitionLog, offset: int, max_bytes: int = 1 << 30) -> bytes:
    """Returns the batches that one read at an offset returns."""
    result = log.reader.read(
        Offset(offset),
        max_bytes=max_bytes,
        whole_first_batch=True,
        isolation=Isolation.READ_UNCOMMITTED,
    )
    assert not isinstance(result, ErrorCode), f"offset {offset}: {result.name}"
    try:
        return b"".join(region.read_bytes() for region in result.regions)
    finally:
        for region in result.regions:
            region.release()


class CompactedLog:
    """A log with its clock, and the operations of tests on both."""

    def __init__(
        self,
        config: LogConfig = CONFIG,
        settings: CleanerSettings = SETTINGS,
        *,
        background: Background = run_at_once,
        sidecars: SidecarMode = SidecarMode.KEPT,
    ) -> None:
        """Create an empty log. `sidecars` says what happens to them before each pass."""
        self.fs = MemoryFileSystem()
        self.log = create_log(
            self.fs,
            identity(),
            config,
            opening(background=background, clock_ms=lambda: self.now_ms),
        )
        for path in ("/", "data", "data/orders"):
            self.fs.sync_directory(path)
        self.log.new_files.sync()
        self.log.new_files.mark_safe()
        self.settings = settings
        self.now_ms = START_MS
        self.remainder: Remainder | None = None
        self.hold = NO_HOLD
        self.must_cover = NOTHING
        self.sidecars = sidecars
        self.sidecar_seed = 0

    # ---------------------------------------------------------------- writing

    def append(
        self,
        *pairs: KeyValue,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
    ) -> Appended:
        """Append one batch and make it durable."""
        batch = batch_of(
            pairs,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return self.append_batch(valid(batch))

    def append_batch(self, batch: ValidBatch) -> Appended:
        appended = self.log.appender.append_as_leader(batch, now_ms=self.now_ms)
        assert isinstance(appended, Appended), appended
        self.make_durable()
        return appended

    def append_segment(self, *pairs: KeyValue) -> None:
        """Append each pair in its own batch, then roll."""
        for pair in pairs:
            self.append(pair)
        self.roll()

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def make_durable(self) -> None:
        """Run one round of group commit."""
        self.log.advance_high_watermark(self.log.sync())

    def reopen(self, *, is_clean: bool, loss: Loss = Loss.EVERYTHING) -> None:
        """Restart the broker: cleanly, or with a crash of the machine."""
        if is_clean:
            self.log.close()
        else:
            self.fs = self.fs.after_crash(loss, Random(0))
        self.log = open_log(
            self.fs,
            identity(),
            self.log.config,
            opening(
                is_clean=is_clean,
                now_ms=self.now_ms,
                leader_epoch=self.log.leader_epoch + 1,
                clock_ms=lambda: self.now_ms,
            ),
        )
        self.remainder = None

    # ---------------------------------------------------------------- cleaning

    def assess(self, *, requested: bool = False) -> Assessment:
        return assess(
            self.log.cleaning_view(),
            self.log.config,
            self.now_ms,
            remainder=self.remainder,
            hold=self.hold,
            requested=requested,
            must_cover=self.must_cover,
        )

    def plan(self, *, requested: bool = True) -> CleaningPlan:
        return plan_pass(
            self.log.cleaning_view(),
            self.assess(requested=requested),
            now_ms=self.now_ms,
            stamp_ms=self.now_ms,
        )

    def execute(
        self, plan: CleaningPlan, *, stop: Callable[[float], bool] = never_stop
    ) -> PassReport:
        self.let_sidecars_happen()
        before = self._kept_sidecars()
        report = self._execute(plan, stop)
        attempts = 1
        while report is None:
            # The bad sidecar was removed, and earlier swaps of this pass remain.
            report = self._execute(replace(plan, view=self.log.cleaning_view()), stop)
            attempts += 1
            assert attempts < ATTEMPTS_MAX, "the pass does not succeed"
        self._check_sidecars(before)
        self.remainder = remainder_of(plan, report)
        return report

    def let_sidecars_happen(self) -> None:
        """Change the sidecars as their mode says."""
        if self.sidecars not in (SidecarMode.KEPT, SidecarMode.OFF):
            # Different each time, yet the same when a history is repeated.
            random = Random(f"{self.sidecar_seed} {self.now_ms} {self.files()}")
            self.sidecars.happen(self.fs, DIRECTORY, random)

    def _execute(self, plan: CleaningPlan, stop: Callable[[float], bool]) -> PassReport | None:
        """Run one pass. Returns None if it stopped at a bad sidecar, which it has removed."""
        keeps = self.settings.keeps_key_sidecars and self.sidecars is not SidecarMode.OFF
        try:
            return clean(
                self.log.cleaning,
                plan,
                replace(self.settings, keeps_key_sidecars=keeps),
                meter=meter_of(self.log, plan.view.generation, stop),
                monotonic=lambda: self.now_ms / 1000,
            )
        except (VerificationFailed, CleaningAborted) as ended:
            may_end = MAY_END.get(self.sidecars)
            # A pass may have swapped groups before: then this is a PlanOutdated.
            is_bad_sidecar = may_end is not None and isinstance(ended, may_end)
            if not is_bad_sidecar or "rebuilds" not in str(ended):
                raise
            return None

    def _check_sidecars(self, before: set[str]) -> None:
        """Check the sidecars that a pass leaves: none, or correct ones, except an inconsistent one that
        it did not read."""
        if self.sidecars is not SidecarMode.LYING:
            assert not (lies := lies_in(self.fs, identity())), lies
        made = self._kept_sidecars() - before
        assert not made, f"sidecars that should be gone: {made}"

    def _kept_sidecars(self) -> set[str]:
        """Returns the sidecars that exist although none should remain."""
        if self.sidecars is SidecarMode.OFF:
            with suppress(MissingFile):  # The topic was deleted.
                return {name for name in self.files() if KEYS in name}
        return set()

    def clean(self) -> PassReport:
        """Roll and clean, as on request."""
        self.roll()
        return self.execute(self.plan())

    def clean_until_idle(self, passes_max: int = 20) -> int:
        """Clean as long as the log is eligible. Returns the number of passes."""
        for passes in range(passes_max):
            if self.assess().reason is None:
                return passes
            self.execute(self.plan(requested=False))
        raise AssertionError(f"still eligible after {passes_max} passes: {self.assess()}")

    # ---------------------------------------------------------------- looking

    def records(self, start_offset: int | None = None) -> list[Record]:
        return records_of(self.log, start_offset)

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Returns offset, key and value of every record."""
        return [(record.offset, record.key, record.value) for record in self.records()]

    def headers(self) -> list[BatchHeader]:
        """Returns the header of every batch in the log's files, including empty batches."""
        return [
            header
            for segment in self.log.segments
            for header in headers_in(segment.files.open().read_at(0, segment.size))
        ]

    def files(self) -> Sequence[str]:
        return self.fs.list(DIRECTORY)


def superseded_log() -> CompactedLog:
    """Returns a log of three sealed segments; of five offsets only 2, 3 and 4 are last values."""
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))
    log.append_segment((b"c", b"1"))
    return log
