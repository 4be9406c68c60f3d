from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cleaner.rules.report import PassReport
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Record, build_batch, build_control_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset, ProducerId
from storage.files.errors import NoSpace, SwapRefused, UndoRefused
from storage.files.paths import MANIFEST, UNDO
from storage.formats.log_config import LogConfig
from storage.log.cleaning import LogCleaning
from storage.log.log import PartitionLog
from storage.log.reader import LogReader
from storage.segment.reader import Isolation
from storage.undo.undo_file import EndReason
from tests.harness.compacted_log import CONFIG, DIRECTORY, CompactedLog
from tests.harness.log_builder import run_of, valid
from tests.harness.memory_fs import Loss, MemoryFileSystem

UNDO_MS = 60_000
KEEPING = replace(CONFIG, compaction_undo_ms=UNDO_MS)
LOG = ".log"


def keeping_log(config: LogConfig = KEEPING) -> CompactedLog:
    """A log of three sealed segments whose passes are kept; of five records two are superseded."""
    log = CompactedLog(config)
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))
    log.append_segment((b"c", b"1"))
    return log


def numbers(log: CompactedLog) -> list[int]:
    return [each.number for each in log.log.passes_kept]


def log_files(log: CompactedLog) -> list[str]:
    return [name for name in log.files() if name.endswith(LOG)]


def state(log: CompactedLog) -> tuple[object, ...]:
    """What an undo has to bring back."""
    return (
        log.pairs(),
        [(each.base_offset, each.file_version) for each in log.log.segments[:-1]],
        log.log.clean_offset,
        log.log.has_history,
        log.log.size_bytes,
    )


def only_pass(log: CompactedLog) -> int:
    (number,) = numbers(log)
    return number


# ---------------------------------------------------------------- keeping and undoing


def test_an_undo_puts_back_what_the_pass_replaced() -> None:
    log = keeping_log()
    before = state(log)
    log.clean()
    after = state(log)
    assert after != before
    log.append((b"d", b"1"))

    undone = log.log.undo_pass(only_pass(log))

    assert log.pairs() == [*before[0], (5, b"d", b"1")]  # type: ignore[misc]
    assert state(log)[1:4] == before[1:4]
    assert undone.segments_restored == 3
    assert undone.segments_removed == 1
    assert numbers(log) == []
    assert len(log_files(log)) == 4


def test_without_the_setting_nothing_is_kept_and_no_file_is_written() -> None:
    log = keeping_log(CONFIG)
    log.clean()

    assert log.log.passes_kept == ()
    assert UNDO not in log.files()
    assert len(log_files(log)) == 2
    with pytest.raises(UndoRefused, match=r"compaction.undo.ms"):
        log.log.undo_pass(1)


def test_without_the_setting_neither_a_pass_nor_a_start_looks_for_the_undo_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    for name in ("exists", "read_bytes", "size", "replace_durably", "unlink"):
        original = getattr(MemoryFileSystem, name)

        def watched(fs: MemoryFileSystem, path: str, *others: Any, _do: Any = original) -> Any:
            looked.append(path)
            return _do(fs, path, *others)

        monkeypatch.setattr(MemoryFileSystem, name, watched)
    log = keeping_log(CONFIG)
    log.clean()
    log.reopen(is_clean=True)
    log.reopen(is_clean=False)

    assert f"{DIRECTORY}/{MANIFEST}" in looked
    assert f"{DIRECTORY}/{UNDO}" not in looked


def test_what_is_kept_counts_neither_in_the_size_nor_in_the_dirty_ratio() -> None:
    log, other = keeping_log(), keeping_log(CONFIG)
    log.clean()
    other.clean()

    assert log.log.size_bytes == other.log.size_bytes
    assert log.log.kept_bytes > 0
    assert log.assess().dirty_ratio == other.assess().dirty_ratio


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_pass_can_be_undone_after_a_restart(is_clean: bool) -> None:
    log = keeping_log()
    before = state(log)
    log.clean()
    number = only_pass(log)
    files = log_files(log)
    log.reopen(is_clean=is_clean)
    assert log_files(log) == files

    log.log.undo_pass(number)

    assert state(log) == before
    log.reopen(is_clean=is_clean)
    assert state(log) == before
    assert len(log_files(log)) == 4
    assert log.log.undo_refusal(number) == "it was undone"


def test_passes_are_undone_from_the_newest_on() -> None:
    log = keeping_log()
    states = [state(log)]
    for value in (b"3", b"4"):
        log.clean()
        log.append_segment((b"a", value), (b"b", value))
        states.append(state(log))
    log.clean()
    first, second, third = numbers(log)

    with pytest.raises(UndoRefused, match=f"in this order: {third}, {second}"):
        log.log.undo_pass(first)
    log.log.undo_pass(third)
    assert state(log) == states[2]
    log.log.undo_pass(second)
    assert [pair for pair in log.pairs() if pair[0] < 7] == states[1][0]
    log.log.undo_pass(first)

    assert len(log.pairs()) == 9
    assert numbers(log) == []


def test_an_undone_pass_can_run_again_and_gets_another_number() -> None:
    log = keeping_log()
    report = log.clean()
    cleaned = log.pairs()
    log.log.undo_pass(only_pass(log))

    again = log.clean()

    assert log.pairs() == cleaned
    assert report.undo_number != again.undo_number == only_pass(log)


def test_the_report_of_a_pass_has_the_number_by_which_it_is_undone() -> None:
    assert keeping_log(CONFIG).clean().undo_number == 0
    log = keeping_log()
    assert log.clean().undo_number == only_pass(log)
    assert log.execute(log.plan()).undo_number == 0


def test_a_pass_that_is_running_cannot_commit_after_an_undo() -> None:
    log = keeping_log()
    log.clean()
    log.append_segment((b"a", b"5"))
    plan = log.plan()

    log.log.undo_pass(only_pass(log))

    with pytest.raises(Exception) as refused:
        log.execute(plan)
    assert type(refused.value).__name__ in ("CleaningAborted", SwapRefused.__name__)


def test_a_reader_that_holds_a_segment_reads_it_to_its_end_after_an_undo() -> None:
    log = keeping_log()
    log.clean()
    result = log.log.reader.read(
        Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert not isinstance(result, ErrorCode)
    (region,) = result.regions
    data = region.read_bytes()

    log.log.undo_pass(only_pass(log))

    assert region.read_bytes() == data
    assert len(log_files(log)) == 5
    result.release()
    assert len(log_files(log)) == 4


# ---------------------------------------------------------------- what makes an undo wrong


def test_a_truncation_ends_all_undos() -> None:
    log = keeping_log()
    log.clean()
    number = only_pass(log)
    log.append((b"d", b"1"))

    log.log.truncate_to(Offset(5))

    assert log.log.undo_refusal(number) == "the log was truncated"
    assert len(log_files(log)) == 2
    log.reopen(is_clean=False)
    assert log.log.undo_refusal(number) == "the log was truncated"


def test_deleted_records_do_not_come_back() -> None:
    log = keeping_log()
    log.clean()
    number = only_pass(log)

    log.log.delete_records(Offset(2))

    with pytest.raises(UndoRefused, match="retention or DeleteRecords"):
        log.log.undo_pass(number)
    assert len(log_files(log)) == 2


def test_deleted_records_within_the_first_segment_leave_the_undo() -> None:
    log = keeping_log()
    before = log.pairs()
    log.clean()
    log.log.delete_records(Offset(1))

    log.log.undo_pass(only_pass(log))

    assert log.log.log_start_offset == 1
    assert log.pairs() == before[1:]


def test_a_pass_of_which_nothing_is_kept_ends_the_undo_of_earlier_ones() -> None:
    log = keeping_log()
    log.clean()
    number = only_pass(log)
    log.append_segment((b"a", b"3"))
    log.log.update_config(CONFIG)

    log.execute(log.plan())

    assert log.log.undo_refusal(number) == "a later pass kept nothing of what it replaced"
    assert len(log_files(log)) == 2


def test_a_setting_that_is_turned_off_lets_everything_go() -> None:
    log = keeping_log()
    log.clean()
    number = only_pass(log)
    assert not log.log.kept_is_due(log.now_ms)
    log.log.update_config(CONFIG)
    assert log.log.kept_is_due(log.now_ms)

    log.log.expire_kept(log.now_ms)

    assert "was set to 0" in str(log.log.undo_refusal(number))
    assert len(log_files(log)) == 2
    assert not log.log.kept_is_due(log.now_ms)


def test_a_pass_expires() -> None:
    log = keeping_log()
    log.clean()
    number = only_pass(log)
    log.log.expire_kept(log.now_ms + UNDO_MS - 1)
    assert numbers(log) == [number]
    assert log.log.kept_is_due(log.now_ms + UNDO_MS)

    log.log.expire_kept(log.now_ms + UNDO_MS)

    assert log.log.undo_refusal(number) == "its time is over (compaction.undo.ms)"
    assert len(log_files(log)) == 2
    log.reopen(is_clean=False)
    assert log.log.undo_refusal(number) == "its time is over (compaction.undo.ms)"


def test_a_pass_that_replaces_more_than_the_bound_cannot_be_undone() -> None:
    log = keeping_log(replace(KEEPING, compaction_undo_bytes=100))
    report = log.clean()

    assert report.undo_number == 0
    assert numbers(log) == []
    assert len(log_files(log)) == 2


def test_a_pass_of_several_swaps_beyond_the_bound_is_kept_as_a_whole_or_not_at_all() -> None:
    log = CompactedLog(replace(KEEPING, segment_bytes=1))
    for number in range(6):
        log.append_segment((b"a", b"1"), (b"k%d" % number, b"1"))
    bound = log.log.segments[0].size * 3
    log.log.update_config(replace(log.log.config, compaction_undo_bytes=bound))

    report = log.clean()

    assert report.groups > 1
    assert numbers(log) == []
    assert report.undo_number == 0
    assert len(log_files(log)) == len(log.log.segments)


def test_the_oldest_pass_makes_room_for_the_newest() -> None:
    log = keeping_log()
    log.clean()
    first = only_pass(log)
    log.append_segment((b"a", b"3"))
    log.log.update_config(replace(KEEPING, compaction_undo_bytes=log.log.kept_bytes))

    log.execute(log.plan())

    assert only_pass(log) != first
    assert "compaction.undo.bytes" in str(log.log.undo_refusal(first))


def test_what_is_kept_can_be_listed_and_dropped() -> None:
    log = keeping_log()
    log.clean()
    (kept,) = log.log.passes_kept
    assert [row.base_offset for row in kept.sources] == [0, 2, 4]

    log.log.drop_passes_kept(EndReason.ERASED)

    assert log.log.passes_kept == ()
    assert log.log.undo_refusal(kept.number) == "what was kept was erased on request"
    assert len(log_files(log)) == 2


def test_kept_files_that_are_missing_refuse_the_undo() -> None:
    log = keeping_log()
    log.clean()
    (kept,) = log.log.passes_kept
    path = f"{DIRECTORY}/{kept.sources[1].base_offset:020}.v{kept.sources[1].file_version}.log"
    log.fs.unlink(path)

    with pytest.raises(UndoRefused, match="no longer on the disk"):
        log.log.undo_pass(kept.number)
    assert log.log.offline_reason is None


def test_a_damaged_undo_file_keeps_nothing_and_the_log_opens() -> None:
    log = keeping_log()
    log.clean()
    cleaned = log.pairs()
    log.log.close()
    log.fs.replace_durably(f"{DIRECTORY}/{UNDO}", b"damage")

    log.reopen(is_clean=False, loss=Loss.NOTHING)

    assert numbers(log) == []
    assert log.pairs() == cleaned
    assert len(log_files(log)) == 2


# ---------------------------------------------------------------- changes in the middle of a pass


def swaps_one_by_one(log: CompactedLog, meanwhile: Callable[[int], None]) -> PassReport:
    """Run a pass of several swaps; `meanwhile` is called before each, with its number."""
    swap, count = LogCleaning.swap, 0

    def watched(self: LogCleaning, *rows: Any, **others: Any) -> None:
        nonlocal count
        meanwhile(count)
        count += 1
        swap(self, *rows, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogCleaning, "swap", watched)
        report = log.clean()
    assert count > 2
    return report


def log_of_several_groups(config: LogConfig = KEEPING) -> CompactedLog:
    log = CompactedLog(replace(config, segment_bytes=1))
    for number in range(6):
        log.append_segment((b"a", b"1"), (b"k%d" % number, b"1"))
    return log


def is_clean_of_leftovers(log: CompactedLog) -> bool:
    return len(log_files(log)) == len(log.log.segments) + sum(
        len(each.sources) for each in log.log.passes_kept
    )


def test_a_pass_whose_first_swap_was_not_kept_cannot_be_undone() -> None:
    log = log_of_several_groups(CONFIG)

    def turn_on(count: int) -> None:
        if count == 1:
            log.log.update_config(replace(log.log.config, compaction_undo_ms=UNDO_MS))

    assert swaps_one_by_one(log, turn_on).undo_number == 0
    assert log.log.passes_kept == ()
    assert is_clean_of_leftovers(log)


@pytest.mark.parametrize("how", ["off", "dropped"])
def test_a_pass_whose_kept_segments_go_in_the_middle_keeps_no_more(how: str) -> None:
    log = log_of_several_groups()

    def lose(count: int) -> None:
        if count == 1 and how == "off":
            log.log.update_config(replace(log.log.config, compaction_undo_ms=0))
        if count == 2:
            log.log.update_config(replace(log.log.config, compaction_undo_ms=UNDO_MS))
            log.log.drop_passes_kept(EndReason.DISK)

    assert swaps_one_by_one(log, lose).undo_number == 0
    assert log.log.passes_kept == ()
    assert is_clean_of_leftovers(log)


def test_an_interrupted_pass_can_be_undone_after_a_restart() -> None:
    log = log_of_several_groups()
    before = state(log)

    def stop(count: int) -> None:
        if count == 2:
            raise SwapRefused("stopped")

    with pytest.raises(SwapRefused):
        swaps_one_by_one(log, stop)
    assert log.log.cut_offset_min > 0
    log.reopen(is_clean=False)

    log.log.undo_pass(only_pass(log))

    assert state(log) == before
    assert log.log.cut_offset_min == 0
    assert is_clean_of_leftovers(log)


# ---------------------------------------------------------------- a full disk


@contextmanager
def no_space_for(log: CompactedLog, name: str) -> Iterator[None]:
    """Let the disk have no space for a file."""
    replace_durably = log.fs.replace_durably

    def refuse(path: str, data: bytes, **others: bool) -> None:
        if path.endswith(name):
            raise NoSpace("write", path, 28, "no space left on device")
        replace_durably(path, data, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log.fs, "replace_durably", refuse)
        yield


def test_on_a_full_disk_a_pass_runs_and_keeps_nothing() -> None:
    log = keeping_log()
    first = log.clean().undo_number
    log.append_segment((b"a", b"3"))

    with no_space_for(log, UNDO):
        report = log.execute(log.plan())

    assert (report.groups, report.undo_number) == (1, 0)
    assert "nearly full" in str(log.log.undo_refusal(first))
    assert is_clean_of_leftovers(log)
    cleaned = log.pairs()
    log.reopen(is_clean=False)
    assert log.log.passes_kept == ()
    assert log.pairs() == cleaned


def test_a_swap_that_finds_no_space_for_its_manifest_is_not_kept() -> None:
    log = keeping_log()
    before = log.clean().undo_number
    log.append_segment((b"a", b"3"))
    records = log.pairs()

    with no_space_for(log, MANIFEST), pytest.raises(NoSpace):
        log.execute(log.plan())

    assert only_pass(log) == before
    assert log.pairs() == records
    log.reopen(is_clean=False)
    assert only_pass(log) == before
    assert log.execute(log.plan()).undo_number > before
    assert is_clean_of_leftovers(log)


def test_an_undo_that_finds_no_space_changes_nothing() -> None:
    log = keeping_log()
    number = log.clean().undo_number
    after = state(log)

    with no_space_for(log, MANIFEST), pytest.raises(NoSpace):
        log.log.undo_pass(number)

    assert state(log) == after
    assert log.log.offline_reason is None
    log.log.undo_pass(number)
    assert len(log.pairs()) == 5


def test_what_is_kept_goes_on_a_full_disk_though_the_file_cannot_be_written() -> None:
    log = keeping_log()
    log.clean()
    cleaned = log.pairs()

    with no_space_for(log, UNDO):
        log.log.drop_passes_kept(EndReason.DISK)

    assert is_clean_of_leftovers(log)
    log.reopen(is_clean=False)
    assert log.log.passes_kept == ()
    assert log.pairs() == cleaned


# ---------------------------------------------------------------- transactions


def append_transaction(log: CompactedLog, key: bytes, *, aborted: bool, producer_id: int) -> None:
    """A transaction of one record, and its marker."""
    known = log.log.producers.get(ProducerId(producer_id))
    offset = log.log.log_end_offset
    log.append_batch(
        valid(
            build_batch(
                [Record(offset=0, timestamp=1000, key=key, value=b"of a transaction")],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=known.batches[-1].last_sequence + 1 if known else 0,
                is_transactional=True,
            )
        )
    )
    kind = ControlType.ABORT if aborted else ControlType.COMMIT
    marker = build_control_batch(
        TransactionMarker(type=kind, coordinator_epoch=0),
        offset=offset + 1,
        timestamp=1000,
        producer_id=producer_id,
        producer_epoch=0,
        leader_epoch=log.log.leader_epoch,
    )
    log.log.appender.append_as_follower(run_of(marker), now_ms=log.now_ms)
    log.make_durable()


def aborted_of(log: PartitionLog) -> Sequence[tuple[int, int]]:
    result = log.reader.read(
        Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_COMMITTED
    )
    assert not isinstance(result, ErrorCode)
    result.release()
    return result.aborted


@pytest.mark.parametrize("restarts", ["", "before", "after", "before and after"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_readers_skip_aborted_records_again_after_an_undo(restarts: str, is_clean: bool) -> None:
    log = CompactedLog(KEEPING)
    for number in range(3):
        append_transaction(log, b"a", aborted=number != 1, producer_id=7 + number)
    before = aborted_of(log.log)
    assert before == [(7, 0), (9, 4)]
    log.clean()
    assert aborted_of(log.log) == []
    append_transaction(log, b"b", aborted=True, producer_id=20)
    if "before" in restarts:
        log.reopen(is_clean=is_clean)

    log.log.undo_pass(only_pass(log))

    if "after" in restarts:
        log.reopen(is_clean=is_clean)
    assert aborted_of(log.log) == before
    assert log.log._states.aborted.rows == [(7, 0, 1), (9, 4, 5), (20, 6, 7)]


def test_a_reader_that_meets_an_undo_reads_again() -> None:
    """Else it would get records with the aborted transactions of the other log."""
    log = CompactedLog(KEEPING)
    append_transaction(log, b"a", aborted=True, producer_id=7)
    log.clean()
    assert aborted_of(log.log) == []
    read, reads = LogReader._read, 0

    def meet(self: LogReader, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        result = read(self, *arguments)
        if reads == 1:
            log.log.undo_pass(only_pass(log))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogReader, "_read", meet)
        assert aborted_of(log.log) == [(7, 0)]

    assert reads == 2
    assert is_clean_of_leftovers(log)


def test_a_pass_without_swaps_leaves_the_undo_of_the_one_before() -> None:
    log = keeping_log()
    before = state(log)
    log.clean()
    log.append_segment((b"z", b"1"))
    assert log.execute(log.plan()).groups == 0

    log.log.undo_pass(only_pass(log))

    assert log.log.clean_offset == before[2] == 0
