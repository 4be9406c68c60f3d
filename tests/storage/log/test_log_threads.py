"""A log under all its threads at once: the loop's, the sync round's, the background's, a cleaner's.

A second cleaner thread builds key sidecars, drops them, and reads those that others have built.

The loop's thread appends, rolls and reads; no other thread moves the high watermark. The test compares
every read with the appended records, cleaned or not, and finally the log after a crash.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from protocol.records.record_batch import Record
from protocol.wire.numbers import Offset
from storage.files.errors import SegmentRemoved, SwapRefused
from storage.files.local_files import LocalFileSystem
from storage.files.paths import KEYS, parse_segment_file
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.key_blocks import check_sidecar, index
from tests.harness.log_builder import batch_of, end_of, records_in, valid
from tests.harness.log_home import LogHome, read_all

APPENDS = 1500
DROPPED_MIN = 100
"""The test appends until the cleaner has dropped this many records as well."""


class Worker(threading.Thread):
    """Runs a step again and again; `finish` raises its exception."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.step = step
        self.stopped = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self.step()
        except BaseException as error:  # noqa: BLE001 - raised by `finish`
            self.error = error

    def finish(self) -> None:
        self.stopped.set()
        self.join()
        if self.error is not None:
            raise self.error


class Background:
    """The queue of a worker thread."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def __call__(self, work: Callable[[], None]) -> None:
        self.work.put(work)

    def step(self) -> None:
        try:
            self.work.get(timeout=0.01)()
        except queue.Empty:
            return


def clean_some(log: PartitionLog, random: Random, dropped: set[int]) -> None:
    """Swap a few segments once, as the cleaner's threads do."""
    view = log.cleaning_view()
    ready = [each for each in view.segments if each.row.end_offset <= view.high_watermark]
    if not ready:
        return
    first = random.randrange(len(ready))
    sources = ready[first : first + 3]
    doomed: set[int] = set()

    def keep(record: Record) -> bool:
        if record.offset % 3 == 1:
            return True
        doomed.add(record.offset)
        return False

    batches, _ = recopied(sources, keep, view.producer_last_offsets)
    cleaned = write_cleaned(log, sources, batches, cut=random.randrange(len(batches) + 1))
    dropped |= doomed
    try:
        log.cleaning.swap(
            [each.row for each in sources],
            cleaned,
            generation=view.generation,
            clean_offset=None,
        )
    except SwapRefused:
        raise AssertionError("nobody else changes the log") from None


def index_some(log: PartitionLog, random: Random) -> None:
    """Build, check or drop a segment's key sidecar, even if the segment goes meanwhile."""
    time.sleep(0.005)
    segments = log.cleaning_view().segments
    if not segments:
        return
    segment = random.choice(segments)
    # The segment was swapped out, and its sidecar with it.
    with suppress(SegmentRemoved):
        if not check_sidecar(segment, log.identity.hash_key):
            index(segment, log.identity.hash_key)
        elif random.random() < 0.2:
            segment.drop_key_sidecar()


def read_from(log: PartitionLog, offset: int) -> list[Record]:
    result = log.reader.read(
        Offset(offset),
        max_bytes=2000,
        whole_first_batch=True,
        isolation=Isolation.READ_UNCOMMITTED,
    )
    assert isinstance(result, ReadResult)
    data = b"".join(region.read_bytes() for region in result.regions)
    for region in result.regions:
        region.release()
    assert not data or end_of(data) <= log.high_watermark
    return list(records_in(data))


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let threads take turns often: more interleavings, and nobody waits 5 ms for each file call."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quick_switches")
def test_all_threads_of_a_log_agree(tmp_path: Path) -> None:
    random = Random(5)
    background = Background()
    home = LogHome(
        LocalFileSystem(),
        directory=str(tmp_path / "log"),
        background=background,  # type: ignore[arg-type]
    )
    (tmp_path / "log").mkdir()
    log = home.create()
    synced: queue.SimpleQueue[int] = queue.SimpleQueue()
    dropped: set[int] = set()
    clean_random, index_random = Random(6), Random(7)
    workers = [
        Worker(lambda: synced.put(log.sync())),
        Worker(background.step),
        Worker(lambda: clean_some(log, clean_random, dropped)),
        Worker(lambda: index_some(log, index_random)),
    ]
    for worker in workers:
        worker.start()
    values: dict[int, bytes] = {}
    for number in itertools.count():
        if number >= APPENDS and len(dropped) >= DROPPED_MIN:
            break
        for worker in workers:
            assert worker.error is None, repr(worker.error)
        # Segments of a few batches roll far more often than real ones: let the others keep up.
        time.sleep(0.002 if background.work.qsize() > 4 else 0.0)
        value = b"%d" % number
        appended = log.appender.append_as_leader(
            valid(batch_of([(b"key", value + bytes(random.randrange(60)))])), now_ms=number
        )
        assert isinstance(appended, Appended)
        values[appended.base_offset] = value
        # Of all syncs since the last append only the last counts, as after a round of group commit.
        # There may be thousands of them: a sync of nothing takes no time.
        reached = [synced.get() for _ in range(synced.qsize())]
        if reached:
            log.advance_high_watermark(Offset(reached[-1]))
        if log.high_watermark and number % 3 == 0:
            for record in read_from(log, random.randrange(log.high_watermark)):
                assert record.value is not None
                assert record.value.rstrip(b"\0") == values[record.offset]
    for worker in workers:
        worker.finish()
    log.advance_high_watermark(log.sync())
    while not background.work.empty():
        background.step()
    found = [record.offset for record in read_all(log, max_bytes=5000)]
    assert not home.failures
    assert set(values) - set(found) <= dropped
    assert len(log.segments) > 20
    listed = {(each.base_offset, each.file_version) for each in log.segments[:-1]}
    names = [path.name for path in (tmp_path / "log").iterdir()]
    files = [file for file in map(parse_segment_file, names) if file]
    assert {(file.base_offset, file.version) for file in files if file.kind == KEYS} <= listed
    assert not any(file.is_cleaned for file in files)
    assert sum(check_sidecar(each, bytes(16)) for each in log.cleaning_view().segments) > 10
    again = home.open()
    assert [record.offset for record in read_all(again, max_bytes=5000)] == found
