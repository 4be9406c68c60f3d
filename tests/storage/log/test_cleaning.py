from __future__ import annotations

import dataclasses
import errno
from random import Random

import pytest

from protocol.records.record_batch import Record, build_batch
from protocol.wire.numbers import Offset
from storage.files.errors import DiskError, NoSpace, SwapRefused
from storage.files.paths import CLEANED, MANIFEST
from storage.formats.manifest import SegmentRow, decode, encode
from storage.log.appender import Appended
from storage.log.cleaning_view import CleaningView
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, records_in, run_of, valid
from tests.harness.log_home import LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

DIRECTORY = "/data/orders/0"


@dataclasses.dataclass(slots=True)
class Pass:
    """A pass over the first two of four sealed segments, ready to be swapped in."""

    disk: MemoryFileSystem
    home: LogHome
    log: PartitionLog
    view: CleaningView

    def swap(self, keep: set[int], *, cut: int = 99, clean_offset: Offset | None = None) -> None:
        sources = self.view.segments[:2]
        batches, _ = recopied(sources, lambda record: record.offset in keep, ())
        cleaned = write_cleaned(self.log, sources, batches, cut=cut)
        self.log.cleaning.swap(
            [each.row for each in sources],
            cleaned,
            generation=self.view.generation,
            clean_offset=clean_offset,
        )

    def offsets(self) -> list[int]:
        return [record.offset for record in read_all(self.log)]

    def names(self) -> list[str]:
        return self.disk.list(DIRECTORY)


@pytest.fixture
def cleaning() -> Pass:
    disk = MemoryFileSystem()
    home = LogHome(disk)
    log = home.create()
    for _ in range(4):
        for number in range(3):
            batch = batch_of([(b"k%d" % number, bytes(40))])
            assert isinstance(log.appender.append_as_leader(valid(batch), now_ms=0), Appended)
        log.roll(0)
    log.advance_high_watermark(log.sync())
    return Pass(disk, home, log, log.cleaning_view())


@pytest.mark.parametrize(
    ("keep", "cut", "bases"),
    [
        pytest.param({1, 4}, 99, [0, 6, 9, 12], id="two_for_one"),
        pytest.param({1, 4}, 1, [0, 4, 6, 9, 12], id="two_for_two"),
        pytest.param(set(), 0, [6, 9, 12], id="two_for_none"),
    ],
)
def test_swap_shows_the_cleaned_records_and_keeps_every_offset_legal(
    cleaning: Pass, keep: set[int], cut: int, bases: list[int]
) -> None:
    cleaning.swap(keep, cut=cut)
    assert cleaning.offsets() == [*sorted(keep), *range(6, 12)]
    assert [segment.base_offset for segment in cleaning.log.segments] == bases
    assert cleaning.log.log_start_offset == 0
    for offset in range(13):
        answer = cleaning.log.reader.read(
            Offset(offset),
            max_bytes=1,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        assert isinstance(answer, ReadResult)


def test_source_files_are_gone_and_the_cleaned_ones_have_final_names(cleaning: Pass) -> None:
    cleaning.swap({1})
    assert not [name for name in cleaning.names() if name.endswith(CLEANED)]
    manifest = decode(cleaning.disk.read_bytes(f"{DIRECTORY}/manifest"), "m")
    assert [row.is_cleaned for row in manifest.segments] == [True, False, False, False]
    logs = [name for name in cleaning.names() if name.endswith(".log")]
    assert len(logs) == len(manifest.segments)


def test_source_stays_until_its_last_reader_lets_go(cleaning: Pass) -> None:
    result = cleaning.log.reader.read(
        Offset(0), max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert isinstance(result, ReadResult)
    files = len(cleaning.names())
    cleaning.swap({1})
    (region,) = result.regions
    assert [record.offset for record in records_in(region.read_bytes())] == [0]
    assert len(cleaning.names()) > files - 3
    region.release()
    assert len([name for name in cleaning.names() if name.endswith(".log")]) == 4


def test_clean_offset_moves_with_the_swap_that_says_so_and_is_durable(cleaning: Pass) -> None:
    cleaning.swap({1}, clean_offset=None)
    assert cleaning.log.clean_offset == 0
    cleaning.view = cleaning.log.cleaning_view()
    cleaning.swap({1}, clean_offset=Offset(9))
    left = LogHome(cleaning.disk.after_crash(Loss.EVERYTHING, Random(0)))
    assert left.open().clean_offset == 9


def test_clean_offset_is_seen_to_move_only_with_the_cleaned_segments(cleaning: Pass) -> None:
    log, before = cleaning.log, cleaning.log.segments
    seen: set[tuple[int, bool]] = set()
    cleaning.disk.on_operation = lambda _action, _path: seen.add(
        (log.clean_offset, log.segments == before)
    )

    cleaning.swap({1}, clean_offset=Offset(9))

    assert seen == {(0, True), (9, False)}


def test_clean_offset_is_never_seen_beyond_the_end_of_a_log_that_is_truncated(
    cleaning: Pass,
) -> None:
    log = cleaning.log
    log.cleaning.commit_clean_offset(Offset(9), generation=cleaning.view.generation)
    seen: set[tuple[int, int]] = set()
    cleaning.disk.on_operation = lambda _action, _path: seen.add(
        (log.clean_offset, log.log_end_offset)
    )

    log.truncate_to(Offset(7))

    assert seen == {(9, 12), (7, 7)}


def test_clean_offset_moves_alone_and_is_durable(cleaning: Pass) -> None:
    names = cleaning.names()

    cleaning.log.cleaning.commit_clean_offset(Offset(9), generation=cleaning.view.generation)

    assert (cleaning.log.clean_offset, cleaning.names()) == (9, names)
    left = LogHome(cleaning.disk.after_crash(Loss.EVERYTHING, Random(0)))
    assert left.open().clean_offset == 9


def test_clean_offset_of_a_log_that_was_truncated_since_is_refused(cleaning: Pass) -> None:
    cleaning.log.truncate_to(Offset(7))

    with pytest.raises(SwapRefused, match="truncated"):
        cleaning.log.cleaning.commit_clean_offset(Offset(12), generation=cleaning.view.generation)

    assert cleaning.log.clean_offset == 0
    assert cleaning.home.failures == []


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean_stop", "crash"])
@pytest.mark.parametrize("wrong", [2, 99], ids=["below_the_start", "beyond_the_end"])
def test_a_clean_offset_outside_the_log_becomes_its_start_even_without_cleaning(
    cleaning: Pass, wrong: int, is_clean: bool
) -> None:
    """LogCleanerManagerTest: testCheckpointUpdatedForInvalidOffset{NoCleaning,NotSelected},
    testDirtyOffsetResetIf{LargerThanEndOffset,SmallerThanStartOffset}."""
    cleaning.log.delete_records(Offset(3))
    cleaning.log.close()
    path = f"{DIRECTORY}/{MANIFEST}"
    manifest = dataclasses.replace(
        decode(cleaning.disk.read_bytes(path), path), clean_offset=Offset(wrong)
    )
    cleaning.disk.replace_durably(path, encode(manifest))

    log = cleaning.home.open(is_clean=is_clean)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
    log.close()

    assert log.clean_offset == 3
    assert decode(cleaning.disk.read_bytes(path), path).clean_offset == 3


@pytest.mark.parametrize("change", ["truncate", "truncate_fully", "policy", "retire"])
def test_log_that_changed_since_the_plan_refuses_the_swap(cleaning: Pass, change: str) -> None:
    """Seed 003's race: a pass must not restore what a truncation removed."""
    sources = cleaning.view.segments[:2]
    batches, _ = recopied(sources, lambda _: True, ())
    cleaned = write_cleaned(cleaning.log, sources, batches, cut=99)
    if change == "truncate":
        cleaning.log.truncate_to(Offset(7))
    elif change == "truncate_fully":
        cleaning.log.truncate_fully_and_start_at(Offset(20))
    elif change == "policy":
        config = dataclasses.replace(cleaning.log.config, cleanup_policy=("delete",))
        cleaning.log.update_config(config)
    else:
        cleaning.log.retire()
    end = cleaning.log.log_end_offset
    with pytest.raises(Exception, match=r"truncated|deleted"):
        cleaning.log.cleaning.swap(
            [each.row for each in sources],
            cleaned,
            generation=cleaning.view.generation,
            clean_offset=None,
        )
    assert cleaning.log.log_end_offset == end
    assert cleaning.home.failures == []


def test_sources_that_are_not_neighbours_or_active_or_unknown_are_refused(cleaning: Pass) -> None:
    rows = [each.row for each in cleaning.view.segments]
    active = cleaning.log.segments[-1].row()
    unknown = SegmentRow(base_offset=Offset(0), file_version=99)
    for sources in ([rows[0], rows[2]], [active], [unknown], [], [rows[1], rows[0]]):
        with pytest.raises(SwapRefused):
            cleaning.log.cleaning.swap(
                sources, [], generation=cleaning.view.generation, clean_offset=None
            )
    assert cleaning.offsets() == list(range(12))


def test_full_disk_leaves_the_log_as_it_was_and_nothing_staged(cleaning: Pass) -> None:
    sources = cleaning.view.segments[:2]
    batches, _ = recopied(sources, lambda record: record.offset == 1, ())
    cleaned = write_cleaned(cleaning.log, sources, batches, cut=99)
    cleaning.disk.faults.fail("write", errno.ENOSPC, path="manifest.tmp")
    with pytest.raises(NoSpace):
        cleaning.log.cleaning.swap(
            [each.row for each in sources],
            cleaned,
            generation=cleaning.view.generation,
            clean_offset=None,
        )
    assert cleaning.offsets() == list(range(12))
    assert not [name for name in cleaning.names() if name.endswith(CLEANED)]
    cleaning.swap({1})
    assert cleaning.offsets() == [1, *range(6, 12)]


def test_disk_that_fails_after_the_commit_takes_the_directory_offline_and_recovery_finishes(
    cleaning: Pass,
) -> None:
    cleaning.disk.faults.fail("rename", errno.EIO, path=CLEANED)
    with pytest.raises(DiskError):
        cleaning.swap({1})
    assert len(cleaning.home.failures) == 1
    recovered = LogHome(cleaning.disk.after_crash(Loss.EVERYTHING, Random(0))).open()
    assert [record.offset for record in read_all(recovered)] == [1, *range(6, 12)]


def test_leading_and_middle_empty_batches_are_never_all_of_an_answer() -> None:
    """Shapes K and M: data, an empty batch, then one too large for the rest; and an empty one first."""
    home = LogHome(
        MemoryFileSystem(),
        config=dataclasses.replace(LogHome(MemoryFileSystem()).config, segment_bytes=1 << 20),
    )
    log = home.create()
    log.appender.append_as_leader(valid(batch_of([(b"a", b"1")])), now_ms=0)
    log.appender.advance_end(Offset(5))
    log.appender.advance_end(Offset(9))
    log.appender.append_as_leader(valid(batch_of([(b"b", bytes(3000))])), now_ms=0)
    log.advance_high_watermark(log.sync())

    def answer(offset: int) -> list[int]:
        result = log.reader.read(
            Offset(offset),
            max_bytes=300,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        assert isinstance(result, ReadResult)
        return [
            record.offset for region in result.regions for record in records_in(region.read_bytes())
        ]

    assert answer(0) == [0]
    for offset in range(1, 10):
        assert answer(offset) == [9]


def test_batch_whose_last_records_were_cleaned_still_covers_its_offsets() -> None:
    home = LogHome(MemoryFileSystem())
    log = home.create()
    batch = build_batch(
        [Record(offset=0, timestamp=1, key=b"k", value=b"v")], base_offset=0, last_offset=9
    )
    log.appender.append_as_follower(run_of(batch), now_ms=0)
    assert log.log_end_offset == 10
    recovered = LogHome(home.fs.after_crash(Loss.NOTHING, Random(0))).open()  # type: ignore[attr-defined]
    assert recovered.log_end_offset == 10
