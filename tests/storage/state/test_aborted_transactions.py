from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset, ProducerId
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.files.paths import ABORTED_TRANSACTIONS
from storage.log import reader as log_reader
from storage.log.cleaning import LogCleaning
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from storage.segment import reader
from storage.segment.reader import Isolation
from storage.state.aborted_transactions import (
    AbortedTransactions,
    Row,
    decode_aborted_transactions,
)
from tests.harness.compacted_log import DIRECTORY, CompactedLog, identity, opening
from tests.harness.log_builder import records_in
from tests.harness.log_transactions import committed_offsets
from tests.harness.memory_fs import Loss
from tests.harness.transactional_producer import TransactionalProducer

PATH = f"{DIRECTORY}/{ABORTED_TRANSACTIONS}"


def row(producer_id: int, first_offset: int, marker_offset: int) -> Row:
    return ProducerId(producer_id), Offset(first_offset), Offset(marker_offset)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Rows in the form in which a log makes them: each transaction begins before its marker."""
    markers = sorted(draw(st.sets(st.integers(1, 60), max_size=12)))
    return [row(draw(st.integers(0, 3)), draw(st.integers(0, at - 1)), at) for at in markers]


@given(rows(), st.integers(0, 62), st.integers(0, 62))
def test_a_reader_gets_the_aborts_that_it_may_meet(there: list[Row], offset: int, end: int) -> None:
    expected = [(who, first) for who, first, marker in there if marker >= offset and first < end]
    assert AbortedTransactions(there).between(Offset(offset), Offset(end)) == expected


@given(rows(), st.integers(0, 62), st.integers(0, 62), st.integers(0, 62))
def test_rows_go_at_both_ends(there: list[Row], below: int, end: int, offset: int) -> None:
    aborted = AbortedTransactions(there)
    left = [each for each in there if below <= each[2] < end]
    assert aborted.forget_below(Offset(below)) == any(each[2] < below for each in there)
    assert aborted.truncate_from_end(Offset(end)) == any(
        each[2] >= max(below, end) for each in there
    )
    assert aborted.rows == left
    assert aborted.between(Offset(offset), Offset(63)) == AbortedTransactions(left).between(
        Offset(offset), Offset(63)
    )
    aborted.extend([row(9, 0, 99)])
    assert aborted.between(Offset(0), Offset(1)) == [
        *AbortedTransactions(left).between(Offset(0), Offset(1)),
        (9, 0),
    ]


@given(rows(), st.integers(0, 62), st.integers(0, 62), st.integers(0, 62), st.data())
def test_forgotten_rows_can_be_restored(
    there: list[Row], below: int, offset: int, end: int, data: st.DataObject
) -> None:
    aborted = AbortedTransactions(there)
    forgotten = aborted.below(Offset(below))
    assert forgotten == [each for each in there if each[2] < below]
    aborted.forget_below(Offset(below))
    known = data.draw(st.lists(st.sampled_from(there), max_size=3)) if there else []

    aborted.restore([*reversed(forgotten), *forgotten, *(e for e in known if e[2] >= below)])

    assert aborted.rows == there
    fresh = AbortedTransactions(there)
    assert aborted.between(Offset(offset), Offset(end)) == fresh.between(
        Offset(offset), Offset(end)
    )


@given(rows())
def test_file_is_read_back(there: list[Row]) -> None:
    data = AbortedTransactions(there).encode()
    assert decode_aborted_transactions(data, "p").rows == there


def test_any_flipped_bit_and_any_cut_of_the_file_is_damage() -> None:
    data = AbortedTransactions([row(7, 1, 5), row(8, 2, 9)]).encode()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(DamagedFile):
            decode_aborted_transactions(bytes(flipped), "p")
        with pytest.raises(DamagedFile):
            decode_aborted_transactions(data[:position], "p")


def sealed(body: bytes) -> bytes:
    return body + struct.pack(">Q", xxhash.xxh3_64_intdigest(body))


def test_a_later_release_may_lengthen_rows_but_not_raise_the_format() -> None:
    long_row = struct.pack(">qqqq", 7, 1, 5, 99)
    longer = sealed(struct.pack(">4sHHI", b"KABT", 1, 32, 1) + long_row)
    assert decode_aborted_transactions(longer, "p").rows == [(7, 1, 5)]
    with pytest.raises(FormatFromTheFuture):
        decode_aborted_transactions(sealed(struct.pack(">4sHHI", b"KABT", 2, 24, 0)), "p")
    with pytest.raises(DamagedFile):
        decode_aborted_transactions(sealed(struct.pack(">4sHHI", b"KABT", 1, 16, 0)), "p")
    unordered = struct.pack(">qqq", 7, 1, 5) * 2
    with pytest.raises(DamagedFile):
        decode_aborted_transactions(
            sealed(struct.pack(">4sHHI", b"KABT", 1, 24, 2) + unordered), "p"
        )


# -------------------------------------------------------------------- in a log


def aborted(
    log: CompactedLog, offset: int = 0, *, max_bytes: int = 1 << 20
) -> list[tuple[int, int]]:
    """Returns the aborted transactions that a read_committed fetch reports."""
    result = log.log.reader.read(
        Offset(offset),
        max_bytes=max_bytes,
        whole_first_batch=True,
        isolation=Isolation.READ_COMMITTED,
    )
    assert not isinstance(result, ErrorCode)
    result.release()
    return list(result.aborted)


def interleaved(log: CompactedLog) -> None:
    """Two producers in parallel: 1 aborts [0, 3], 2 commits [1, 4], 1 aborts [5, 6]."""
    first, second = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    first.send((b"a", b"1"))
    second.send((b"b", b"1"))
    first.send((b"a", b"2"))
    first.abort()
    second.commit()
    first.send((b"a", b"3"))
    first.abort()


def test_read_committed_reader_gets_the_aborts_that_it_meets() -> None:
    log = CompactedLog()
    interleaved(log)
    assert aborted(log) == [(1, 0), (1, 5)]
    assert aborted(log, 3) == [(1, 0), (1, 5)]
    assert aborted(log, 4) == [(1, 5)]
    assert aborted(log, 6) == [(1, 5)]
    assert aborted(log, 7) == []


def test_reader_gets_only_the_aborts_in_what_it_is_sent() -> None:
    log = CompactedLog()
    interleaved(log)
    assert aborted(log, max_bytes=1) == [(1, 0)]
    assert aborted(log, 4, max_bytes=1) == []


def test_read_uncommitted_reader_gets_no_aborts() -> None:
    log = CompactedLog()
    interleaved(log)
    result = log.log.reader.read(
        Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert not isinstance(result, ErrorCode)
    result.release()
    assert result.aborted == ()


def test_a_marker_without_a_transaction_aborts_nothing() -> None:
    log = CompactedLog()
    log.append((b"x", b"1"))
    TransactionalProducer(log, 1).abort()
    assert aborted(log) == []


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("rolls", [(), (2,), (3, 6), (7,)])
def test_aborts_are_known_after_a_restart(is_clean: bool, rolls: tuple[int, ...]) -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    for at in range(4):
        for is_marker in (False, True):
            if log.log.log_end_offset in rolls:
                log.roll()
            _ = producer.abort() if is_marker else producer.send((b"a", b"1"))
        if at == 1:
            log.reopen(is_clean=is_clean)
    log.reopen(is_clean=is_clean)
    assert aborted_rows(log) == [(1, 0, 1), (1, 2, 3), (1, 4, 5), (1, 6, 7)]


def test_recovery_knows_where_a_transaction_began_that_goes_on_behind_its_snapshot() -> None:
    log = CompactedLog()
    producer, other = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    producer.send((b"a", b"1"))
    other.send((b"b", b"1"))
    log.roll()
    producer.send((b"a", b"2"))
    producer.abort()
    other.send((b"b", b"2"))
    other.commit()
    other.send((b"b", b"3"))
    other.abort()
    log.reopen(is_clean=False)
    assert aborted_rows(log) == [(1, 0, 3), (2, 6, 7)]
    assert not log.fs.exists(PATH)  # The recovery committed nothing: another one finds the same.
    log.reopen(is_clean=False)
    assert aborted_rows(log) == [(1, 0, 3), (2, 6, 7)]


def aborted_rows(log: CompactedLog) -> list[Row]:
    return log.log._states.aborted.rows


def test_damaged_file_is_rebuilt_from_the_batches() -> None:
    for is_clean in (True, False):
        log = CompactedLog()
        interleaved(log)
        log.roll()
        log.append((b"x", b"1"))
        if is_clean:
            log.log.close()
        data = log.fs.read_bytes(PATH)
        log.fs.write_bytes(PATH, data[:-1])
        if is_clean:
            log.log = _opened(log)
        else:
            log.reopen(is_clean=False)
        assert aborted_rows(log) == [(1, 0, 3), (1, 5, 6)]


def _opened(log: CompactedLog) -> PartitionLog:
    return open_log(log.fs, identity(), log.log.config, opening(is_clean=True))


def test_a_log_without_aborts_has_no_file() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    producer.commit()
    log.roll()
    log.reopen(is_clean=True)
    assert ABORTED_TRANSACTIONS not in log.files()


def test_a_cleaned_log_has_no_aborts_left_to_tell_of() -> None:
    log = CompactedLog()
    interleaved(log)
    TransactionalProducer(log, 3).send((b"c", b"1"))
    log.clean()
    assert aborted_rows(log) == []
    log.append((b"x", b"1"))
    log.reopen(is_clean=False)
    assert aborted_rows(log) == []
    assert log.log.last_stable_offset == 7


def committed_after_crashes_in_a_pass() -> set[tuple[int, ...]]:
    """Fetch from a log that crashed at any operation of a pass's swaps."""
    log = CompactedLog()
    interleaved(log)
    log.append((b"x", b"1"))
    log.roll()
    plan = log.plan()
    seen: set[tuple[int, ...]] = set()

    def crash(_action: str, _path: str) -> None:
        for loss in (Loss.EVERYTHING, Loss.NOTHING):
            left = log.fs.after_crash(loss, Random(0))
            opened = open_log(left, identity(), log.log.config, opening(leader_epoch=9))
            seen.add(tuple(committed_offsets(opened)))

    log.fs.on_operation = crash
    log.execute(plan)
    return seen


def test_a_crash_anywhere_in_a_pass_shows_no_aborted_record() -> None:
    assert committed_after_crashes_in_a_pass() == {(1, 7)}


def test_rows_forgotten_before_the_swap_is_committed_would_show_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swap = LogCleaning.swap

    def hasty(self: LogCleaning, *args: Any, clean_offset: Offset | None, **names: Any) -> None:
        self._states.cleaned_up_to(Offset(clean_offset or 0))
        self._states._write_aborted()
        swap(self, *args, clean_offset=clean_offset, **names)

    monkeypatch.setattr(LogCleaning, "swap", hasty)
    assert committed_after_crashes_in_a_pass() != {(1, 7)}


def test_what_a_producer_commits_is_read_after_its_abort_was_cleaned_away() -> None:
    """A row without its marker would hide the record: nothing would end the skipped range."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    marker_offset = producer.abort()
    producer.send((b"b", b"1"))
    producer.commit()
    for number in range(3):
        log.append((f"guard {number}".encode(), b""))
        log.clean()
        log.now_ms += 2 * log.log.config.delete_retention_ms
    assert marker_offset not in [header.base_offset for header in log.headers()]
    assert committed_offsets(log.log)[0] == 2


def test_aborts_below_the_log_start_are_forgotten() -> None:
    log = CompactedLog()
    interleaved(log)
    log.log.delete_records(Offset(5))
    assert aborted_rows(log) == [(1, 5, 6)]
    log.reopen(is_clean=True)
    assert aborted_rows(log) == [(1, 5, 6)]


def test_truncation_takes_back_the_aborts_it_cuts() -> None:
    log = CompactedLog()
    interleaved(log)
    log.roll()
    log.log.truncate_to(Offset(6))
    assert aborted_rows(log) == [(1, 0, 3)]
    TransactionalProducer(log, 1, producer_epoch=1).commit()
    log.reopen(is_clean=False)
    assert aborted_rows(log) == [(1, 0, 3)]


def test_a_pass_that_commits_while_a_read_looks_makes_it_look_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader has found segments with aborted records, whose rows go before it asks for them."""
    log = CompactedLog()
    interleaved(log)
    log.append((b"x", b"1"))
    found = reader.find_region
    passes = [log.clean]

    def interrupted(*args: Any, **names: Any) -> Any:
        region = found(*args, **names)
        if passes:
            passes.pop()()
        return region

    monkeypatch.setattr(log_reader, "find_region", interrupted)
    result = log.log.reader.read(
        Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_COMMITTED
    )
    assert not isinstance(result, ErrorCode)
    data = b"".join(region.read_bytes() for region in result.regions)
    result.release()
    assert not result.aborted
    keys = [record.key for record in records_in(data) if record.value]
    assert b"a" not in keys


@pytest.mark.parametrize("is_clean", [True, False])
def test_missing_file_is_rebuilt_from_the_batches(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = CompactedLog()
    interleaved(log)
    log.roll()
    interleaved(log)
    expected = aborted(log)
    assert expected
    log.reopen(is_clean=True)
    log.fs.unlink(f"{DIRECTORY}/{ABORTED_TRANSACTIONS}")
    log.fs.sync_directory(DIRECTORY)
    if not is_clean:
        log.append((b"x", b"1"))
        log.make_durable()

    log.reopen(is_clean=is_clean)
    assert aborted(log) == expected
    assert "aborted-transactions: No such file" in caplog.text
    log.append((b"x", b"1"))
    log.reopen(is_clean=True)
    assert log.fs.exists(f"{DIRECTORY}/{ABORTED_TRANSACTIONS}")
    assert aborted(log) == expected


def test_a_marker_before_the_last_one_is_a_mistake() -> None:
    aborted = AbortedTransactions([row(1, 0, 5)])
    with pytest.raises(AssertionError):
        aborted.extend([row(2, 1, 5)])
