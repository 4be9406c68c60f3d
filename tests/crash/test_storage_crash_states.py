"""Stop a log at every write, rename, removal and sync, lose what was not synced, and recover it.

Random workloads of append, sync, roll, swap, truncate and restart run on a disk in memory. After each
operation of the disk the machine "loses power" in several ways: everything unsynced is gone, nothing
is, or some sectors and names are. The log is opened from what is left, and must hold

  - all that was acknowledged (synced) and, beyond it, only what was appended, in order, unmoved;
  - of a swap or a truncation that was under way, all or nothing;
  - the last batches of every idempotent producer it still has, and its leader epochs;
  - no file that its manifest does not know;

and a second crash right after the recovery changes nothing.

KOMPAKT_CRASH_STATES sets how many states are tried, KOMPAKT_CRASH_SEED where the seeds begin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from protocol.error_codes import ErrorCode
from protocol.record_batch import BatchHeader, read_header
from storage.log import Appended, PartitionLog
from storage.manifest import decode
from storage.paths import LOG, parse_segment_file
from storage.producer_state import Duplicate
from storage.segment_list import SegmentList
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "25000"))
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))
STEPS = 60
KEYS = [f"key-{number}".encode() for number in range(6)]

Content = dict[int, tuple[bytes | None, bytes | None]]


@dataclass(frozen=True, slots=True)
class Possible:
    """A content that the log may have after a crash: records below any end in [end_min, end_max]."""

    records: Content
    start: int
    end_min: int
    end_max: int


class Failed(AssertionError):
    """A crash state from which recovery went wrong; the message has all to replay it."""


class Workload:
    """One random history of one log, and what a crash may leave of it at any moment."""

    def __init__(self, seed: int, *, states_max: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.crash_random = Random(seed + 1_000_003)
        self.states_max = states_max
        self.states = 0
        self.disk = MemoryFileSystem()
        self.background = Deferred(inline=False)
        self.home = LogHome(self.disk, background=self.background)
        self.epoch = 1
        self.now_ms = 0
        self.what = "create"
        self.records: Content = {}
        self.start = 0
        self.synced_end = 0
        self.other: tuple[Content, int, int] | None = None
        """What the log holds once the operation under way is done: records, start, synced end."""
        self.log_end = 0
        """The log's end when the operation under way began."""
        self.sequences: dict[int, int] = {}
        self.sent: dict[int, list[tuple[BatchHeader, int]]] = {}
        self.log = self.home.create(epoch=self.epoch)
        self.disk.sync_directory("/data/orders/0")

    def run(self) -> int:
        """Play the history, crashing at every operation; how many states were recovered."""
        self.disk.on_operation = self._crash
        steps: list[tuple[Callable[[], None], int]] = [
            (self.append, 30),
            (self.sync, 12),
            (self.roll, 6),
            (self.background.run_one, 12),
            (self.background.run_all, 3),
            (self.swap, 10),
            (self.truncate, 2),
            (self.truncate_fully, 1),
            (self.restart, 2),
            (self.crash_and_go_on, 2),
        ]
        for _ in range(STEPS):
            if self.states >= self.states_max:
                break
            self.now_ms += self.random.randrange(1000)
            (step,) = self.random.choices([s for s, _ in steps], [weight for _, weight in steps])
            self.what = getattr(step, "__name__", "background")
            self.log_end = self.log.log_end_offset
            step()
            assert not self.home.failures, self.home.failures
        return self.states

    # ---------------------------------------------------------------- operations

    def append(self) -> None:
        pairs = [
            (self.random.choice(KEYS), self.random.choice([None, b"v" * self.random.randrange(90)]))
            for _ in range(self.random.randrange(1, 4))
        ]
        producer = self.random.choice([-1, 7, 8])
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        batch = batch_of(
            pairs,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
        first = self.log.log_end_offset
        # What is written may be found from here on, whether or not the append returns.
        self.records.update({first + at: pair for at, pair in enumerate(pairs)})
        appended = self.log.append_as_leader(valid(batch), now_ms=self.now_ms)
        assert isinstance(appended, Appended)
        assert not appended.duplicate
        assert (appended.base_offset, appended.next_offset) == (first, first + len(pairs))
        if producer >= 0:
            self.sequences[producer] = sequence + len(pairs)
            self.sent.setdefault(producer, []).append((read_header(batch), first))

    def sync(self) -> None:
        end = self.log.sync()
        self.log.advance_high_watermark(end)
        self.synced_end = end

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def swap(self) -> None:
        view = self.log.cleaning_view()
        ready = [each for each in view.segments if each.row.end_offset <= view.high_watermark]
        if not ready:
            return
        first = self.random.randrange(len(ready))
        sources = ready[first : first + self.random.randrange(1, 4)]
        batches, dropped = recopied(
            sources, lambda _: self.random.random() < 0.6, view.producer_last_offsets
        )
        cut = self.random.randrange(len(batches) + 1)
        cleaned = write_cleaned(self.log, sources, batches, cut=cut)
        after = {offset: pair for offset, pair in self.records.items() if offset not in dropped}
        self.other = (after, self.start, self.synced_end)
        self.log.swap(
            [each.row for each in sources],
            cleaned,
            generation=view.generation,
            clean_offset=self.random.choice([None, sources[-1].row.end_offset]),
        )
        self.records, self.other = after, None

    def truncate(self) -> None:
        end = self.log.log_end_offset
        offset = self.random.randrange(max(self.start, end - 12), end + 1)
        cut = self._batch_across(offset)
        kept = {at: pair for at, pair in self.records.items() if at < cut}
        self.other = (kept, self.start, min(self.synced_end, cut))
        self.log.truncate_to(offset)
        self._truncated(kept, self.start)

    def truncate_fully(self) -> None:
        offset = self.log.log_end_offset + self.random.randrange(5)
        self.other = ({}, offset, offset)
        self.log.truncate_fully_and_start_at(offset)
        self._truncated({}, offset)

    def _truncated(self, kept: Content, start: int) -> None:
        self.records, self.start, self.other = kept, start, None
        self.synced_end = min(self.synced_end, self.log.log_end_offset)
        self.synced_end = max(self.synced_end, start)
        self.sync()
        self._forget_sent(self.log.log_end_offset)

    def restart(self) -> None:
        self.background.run_all()
        self.log.close()
        self.synced_end = self.log.log_end_offset
        self.disk = self.home.fs = self.disk.after_crash(Loss.EVERYTHING, self.crash_random)
        self.disk.on_operation = self._crash
        self._reopen(is_clean=True)
        assert read_content(self.log) == self.records

    def crash_and_go_on(self) -> None:
        """Live on with a state that a crash has left, as a broker does."""
        self.disk = self.home.fs = self.disk.after_crash(Loss.TORN, self.crash_random)
        self.background.waiting.clear()
        self._reopen(is_clean=False)
        end = self.log.log_end_offset
        self.records = {at: pair for at, pair in self.records.items() if at < end}
        self.synced_end = end
        assert read_content(self.log) == self.records
        self.disk.on_operation = self._crash
        self._forget_sent(end)

    def _forget_sent(self, end: int) -> None:
        """Go on as each producer's last batch below `end` allows, if the log still knows it.

        Cleaning keeps a producer's last batch only, so a truncation may leave none of them.
        """
        for producer, sent in self.sent.items():
            self.sent[producer] = [
                (header, at)
                for header, at in sent
                if at < end and isinstance(self.log.producers.judge(header), Duplicate)
            ]
            state = self.log.producers.get(producer)
            self.sequences[producer] = state.batches[-1].last_sequence + 1 if state else 0

    def _reopen(self, *, is_clean: bool) -> None:
        self.epoch += 1
        self.log = self.home.open(epoch=self.epoch, is_clean=is_clean, now_ms=self.now_ms)

    def _batch_across(self, offset: int) -> int:
        """Where the batch begins that has offsets on both sides of `offset`; else `offset`."""
        for segment in self.log.segments:
            data = segment.file().read_at(0, segment.size)
            position = 0
            while position < len(data):
                header = read_header(data, position)
                if header.base_offset < offset <= header.last_offset:
                    return header.base_offset
                position += header.size_bytes
        return offset

    # ---------------------------------------------------------------- crashing

    def _crash(self, action: str, path: str) -> None:
        # Two states an operation: the more histories, the more different ones.
        for loss in (Loss.TORN, self.crash_random.choice(tuple(Loss))):
            if self.states >= self.states_max:
                return
            self.states += 1
            left = self.disk.after_crash(loss, self.crash_random)
            try:
                self._check(left, nested=self.states % 16 == 0)
            except Exception as error:
                raise Failed(
                    f"seed {self.seed}, state {self.states}: {self.what}, {loss.name} lost after"
                    f" {action} {path}: {type(error).__name__}: {error}"
                ) from error

    def _possible(self) -> list[Possible]:
        end = self.log.log_end_offset
        if self.what in ("append", "truncate", "truncate_fully"):
            end = max(self.log_end, max(self.records, default=-1) + 1)
        found = [Possible(self.records, self.start, self.synced_end, max(end, self.synced_end))]
        if self.other is not None:
            records, start, synced = self.other
            found.append(Possible(records, start, synced, max(end, start)))
        return found

    def _check(self, left: MemoryFileSystem, *, nested: bool) -> None:
        home = LogHome(left)
        if nested:
            left.on_operation = lambda _a, _p: self._check_again(left)
        log = home.open(epoch=self.epoch + 1, now_ms=self.now_ms)
        left.on_operation = None
        content = self._check_log(log)
        assert not home.failures, home.failures
        check_files(home, log)
        # Whatever was recovered is safe, and recovering it again finds the same.
        again = LogHome(left.after_crash(Loss.EVERYTHING, self.crash_random))
        log_again = again.open(epoch=self.epoch + 2, now_ms=self.now_ms)
        assert log_again.log_end_offset == log.log_end_offset
        assert read_content(log_again) == content

    def _check_again(self, left: MemoryFileSystem) -> None:
        """A crash in the middle of a recovery."""
        again = LogHome(left.after_crash(Loss.TORN, self.crash_random))
        self._check_log(again.open(epoch=self.epoch + 1, now_ms=self.now_ms))

    def _check_log(self, log: PartitionLog) -> Content:
        content = read_content(log)
        end = log.log_end_offset
        assert log.high_watermark == end
        matching = [
            possible
            for possible in self._possible()
            if possible.end_min <= end <= possible.end_max
            and log.log_start_offset == possible.start
            and content == {at: pair for at, pair in possible.records.items() if at < end}
        ]
        assert matching, (
            f"[{log.log_start_offset}, {end}) holds {sorted(content)}; possible:"
            f" {[(p.start, p.end_min, p.end_max, sorted(p.records)) for p in self._possible()]}"
        )
        self._check_producers(log, end)
        self._check_epochs(log, end)
        return content

    def _check_producers(self, log: PartitionLog, end: int) -> None:
        if self.what.startswith("truncate"):
            return
        for producer, sent in self.sent.items():
            there = [(header, at) for header, at in sent if at < end]
            if there:
                header, at = there[-1]
                assert log.producers.judge(header) == Duplicate(at, at + header.record_count - 1), (
                    f"producer {producer} is not known with its batch at {at}"
                )

    def _check_epochs(self, log: PartitionLog, end: int) -> None:
        starts = [start for _, start in log.epochs.entries]
        assert starts == sorted(starts)
        assert all(start <= end for start in starts)
        if log.size_bytes and log.segments[0].size:
            data = log.segments[0].file().read_at(0, 61)
            first = read_header(data).leader_epoch
            assert log.end_offset_for_epoch(first)[0] == first


def read_content(log: PartitionLog) -> Content:
    return {record.offset: (record.key, record.value) for record in read_all(log)}


def check_files(home: LogHome, log: PartitionLog) -> None:
    """The manifest lists just the segment files that are there."""
    directory = home.identity.directory
    manifest = decode(home.fs.read_bytes(f"{directory}/manifest"), "manifest")
    assert manifest.truncate_to == -1
    files = [parse_segment_file(name) for name in home.fs.list(directory)]
    there = {(f.base_offset, f.version) for f in files if f is not None and f.kind == LOG}
    assert not any(f.is_cleaned for f in files if f is not None)
    listed = {(row.base_offset, row.file_version) for row in manifest.segments}
    assert there == listed, f"files {sorted(there)} and manifest {sorted(listed)}"
    assert len(log.segments) == len(manifest.segments)


@pytest.mark.timeout(900)
def test_every_crash_state_recovers_what_was_acknowledged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states, seed = 0, SEED
    while states < STATES:
        states += Workload(seed, states_max=STATES - states).run()
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{states} crash states, seeds {SEED} to {seed - 1}\n")


def caught(*, ignores_directory_sync: bool = False) -> bool:
    """Whether some history of the first few shows that something is wrong."""
    for seed in range(SEED, SEED + 20):
        workload = Workload(seed, states_max=2000)
        workload.disk.ignores_directory_sync = ignores_directory_sync
        try:
            workload.run()
        except Failed:
            return True
    return False


def test_sweep_catches_a_disk_that_does_not_sync_directories() -> None:
    assert caught(ignores_directory_sync=True)


def test_sweep_catches_an_acknowledgement_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentList, "sync", lambda _, end_of_log: end_of_log())
    assert caught()


def test_sweep_catches_a_rolled_segment_removed_as_an_orphan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.recovery._Recovery._is_empty", lambda *_: True)
    assert caught()


def test_sweep_catches_a_commit_that_lists_what_is_not_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SegmentList, "_seal", lambda *_: None)
    assert caught()


def test_sweep_catches_a_swap_without_a_synced_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(disk: MemoryFileSystem, path: str, data: bytes) -> None:
        disk.write_bytes(path, data)

    monkeypatch.setattr(MemoryFileSystem, "replace_durably", replace)
    assert caught()


def test_out_of_range_is_an_answer_after_every_full_truncation() -> None:
    home = LogHome(MemoryFileSystem())
    log = home.create()
    log.truncate_fully_and_start_at(50)
    result = home.open().read(
        49,
        max_bytes=1,
        whole_first_batch=True,
        isolation=0,  # type: ignore[arg-type]
    )
    assert result is ErrorCode.OFFSET_OUT_OF_RANGE
