"""A table finds the last record of each key, and follows the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.lookup.key_table import (
    KEYS_MIN,
    KeyTable,
    TableTooSmall,
    first_table_bytes,
    table_bytes,
)
from cleaner.lookup.last_records import Room, TooLarge, WrongTable, last_records, made_table
from cleaner.lookup.table_view import table_view
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset
from storage.files.paths import KEYS
from storage.formats.compaction_strategy import BY_OFFSET
from storage.segment.segment import Segment
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog, meter_of
from tests.harness.damage import flip
from tests.harness.key_lookup import LookedUp
from tests.harness.log_builder import batch_of, valid
from tests.harness.open_transactions import end_transaction, in_transaction

ALL = Offset(0)


def values(looked_up: LookedUp, log: CompactedLog, *keys: bytes) -> list[bytes | str | None]:
    """The last value of each key; "-" if it has no record."""
    found = looked_up.find(log.log, *keys)
    return ["-" if record is None else record.value for record in found]


@pytest.mark.parametrize("codec", Codec)
def test_the_last_record_of_a_key_is_found_with_all_that_it_has(codec: Codec) -> None:
    log = CompactedLog()
    record = Record(
        offset=0,
        timestamp=1_700_000_000_123,
        key=b"k",
        value=b"\xff",
        headers=(("h", b"1"), ("h", None)),
    )
    log.append((b"k", b"old"))
    log.append_batch(valid(build_batch([record], codec=codec)))
    log.append((b"other", b"v"))

    assert LookedUp().find(log.log, b"k") == [replace(record, offset=1)]


def test_sealed_and_active_segments_with_and_without_sidecars_are_searched() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.clean()
    log.append_segment((b"b", b"2"), (b"c", b"1"))
    log.append((b"c", b"2"))

    assert any(KEYS in name for name in log.files())
    assert values(LookedUp(), log, b"a", b"b", b"c", b"d") == [b"1", b"2", b"2", "-"]


def test_a_tombstone_is_found_until_a_pass_has_dropped_it() -> None:
    log, looked_up = CompactedLog(), LookedUp()
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"last", b"1"))

    assert values(looked_up, log, b"a") == [None]
    log.clean()
    log.now_ms += 2 * CONFIG.delete_retention_ms
    log.append((b"last", b"2"))
    log.clean()
    assert values(looked_up, log, b"a") == ["-"]
    assert looked_up.made == 1


def test_a_table_follows_appends_rolls_and_passes_and_is_made_once() -> None:
    log, looked_up = CompactedLog(replace(CONFIG, segment_bytes=400)), LookedUp()
    for number in range(60):
        log.append((b"k%d" % (number % 7), b"%d" % number))
        if number % 9 == 0:
            log.clean()
        newest = [
            b"%d" % max(n for n in range(number + 1) if n % 7 == key)
            for key in range(min(7, number + 1))
        ]
        assert values(looked_up, log, *(b"k%d" % key for key in range(len(newest)))) == newest
    assert looked_up.made == 1


def test_records_of_a_transaction_are_found_once_it_is_committed_and_never_if_aborted() -> None:
    log, looked_up = CompactedLog(), LookedUp()
    log.append((b"a", b"0"), (b"b", b"0"))
    in_transaction(log, 1, (b"a", b"1"))
    in_transaction(log, 2, (b"b", b"1"))
    assert values(looked_up, log, b"a", b"b") == [b"0", b"0"]

    end_transaction(log, 2, is_commit=True)
    # Producer 1 is still open, and began first.
    assert values(looked_up, log, b"a", b"b") == [b"0", b"0"]
    end_transaction(log, 1, is_commit=False)
    assert values(looked_up, log, b"a", b"b") == [b"0", b"1"]
    in_transaction(log, 1, (b"a", b"2"))
    end_transaction(log, 1, is_commit=True)
    assert values(looked_up, log, b"a", b"b") == [b"2", b"1"]
    assert looked_up.made == 1


def test_a_transaction_whose_marker_lies_above_the_last_stable_offset_counts() -> None:
    log = CompactedLog()
    in_transaction(log, 1, (b"a", b"1"))
    in_transaction(log, 2, (b"b", b"1"))
    end_transaction(log, 1, is_commit=True)

    assert log.log.last_stable_offset == 1
    assert values(LookedUp(), log, b"a", b"b") == [b"1", "-"]


def test_a_restarted_or_truncated_log_is_read_again() -> None:
    log, looked_up = CompactedLog(), LookedUp()
    log.append((b"a", b"1"))
    log.append((b"a", b"2"))
    assert values(looked_up, log, b"a") == [b"2"]

    log.log.truncate_to(Offset(1))
    log.make_durable()
    assert values(looked_up, log, b"a") == [b"1"]
    log.reopen(is_clean=True)
    assert values(looked_up, log, b"a") == [b"1"]
    assert looked_up.made == 3


def test_what_lies_below_the_log_start_is_not_found() -> None:
    log, looked_up = CompactedLog(), LookedUp()
    log.append((b"a", b"1"))
    log.append((b"b", b"1"))
    assert values(looked_up, log, b"a", b"b") == [b"1", b"1"]

    log.log.delete_records(Offset(1))
    assert values(looked_up, log, b"a", b"b") == ["-", b"1"]
    assert values(LookedUp(), log, b"a", b"b") == ["-", b"1"]


BY_TIME = replace(CONFIG, compaction_strategy="timestamp")


def at_time(log: CompactedLog, timestamp: int, key: bytes, value: bytes | None) -> None:
    log.append_batch(valid(batch_of([(key, value)], timestamps=[timestamp])))


def test_the_topics_strategy_says_which_record_is_the_last() -> None:
    log, looked_up = CompactedLog(BY_TIME), LookedUp()
    at_time(log, 20, b"a", b"newer")
    at_time(log, 10, b"a", b"late")
    assert values(looked_up, log, b"a") == [b"newer"]

    log.log.update_config(CONFIG)
    assert values(looked_up, log, b"a") == [b"late"]


def test_a_late_record_is_found_once_the_tombstone_that_outranked_it_is_gone() -> None:
    log, looked_up = CompactedLog(BY_TIME), LookedUp()
    at_time(log, 20, b"a", None)
    at_time(log, 20, b"last", b"1")
    log.clean()
    assert values(looked_up, log, b"a") == [None]

    log.now_ms += 2 * CONFIG.delete_retention_ms
    at_time(log, 21, b"last", b"2")
    log.clean()
    at_time(log, 10, b"a", b"late")
    assert values(looked_up, log, b"a") == [b"late"]


def test_where_records_have_versions_a_higher_one_below_the_log_start_outranks_nothing() -> None:
    log, looked_up = CompactedLog(BY_TIME), LookedUp()
    at_time(log, 20, b"a", b"newer")
    at_time(log, 10, b"a", b"late")
    assert values(looked_up, log, b"a") == [b"newer"]

    log.log.delete_records(Offset(1))
    assert values(looked_up, log, b"a") == [b"late"]
    assert values(LookedUp(), log, b"a") == [b"late"]


# ---------------------------------------------------------------- memory


def table_of(log: CompactedLog, bytes_max: int) -> KeyTable:
    view = table_view(log.log, ALL)
    return made_table(view, SETTINGS, meter_of(log.log, log.log.generation), bytes_max=bytes_max)


def test_a_table_takes_27_bytes_a_key_and_says_how_much_it_needs() -> None:
    log = CompactedLog()
    keys = [b"key-%d" % number for number in range(5000)]
    log.append(*((key, b"v") for key in keys))
    assert table_bytes(1_000_000, BY_OFFSET) / 1_000_000 < 27

    with pytest.raises(TableTooSmall) as small:
        table_of(log, table_bytes(3000, BY_OFFSET))
    table = table_of(log, small.value.bytes_needed)

    assert [table.offset_of(key) for key in keys] == list(range(len(keys)))


@pytest.mark.parametrize("keys", [KEYS_MIN, 5001, 20_000])
def test_a_table_has_room_for_as_many_keys_as_it_was_made_for(keys: int) -> None:
    log = CompactedLog()
    log.append(*((b"key-%d" % number, b"v") for number in range(keys)))

    table = table_of(log, table_bytes(keys, BY_OFFSET))
    assert table.offset_of(b"key-%d" % (keys - 1)) == keys - 1


def test_the_first_table_has_room_for_the_clean_keys_and_for_a_guess() -> None:
    log = CompactedLog()
    log.append(*((b"key-%d" % number, b"v") for number in range(5000)))
    log.append((b"last", b"v"))
    log.clean()
    assert first_table_bytes(table_view(log.log, ALL)) == table_bytes(5001, BY_OFFSET)
    log.append((b"another", b"v"))
    assert first_table_bytes(table_view(log.log, ALL)) == table_bytes(5002, BY_OFFSET)
    assert first_table_bytes(table_view(CompactedLog().log, ALL)) == table_bytes(
        KEYS_MIN, BY_OFFSET
    )


def test_a_segment_of_which_a_part_is_clean_counts_as_clean_for_that_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cleaner.lookup.key_table.GUESSED_KEYS_MAX", 10)
    log = CompactedLog()
    log.append(*((b"key-%d" % number, b"v") for number in range(10_000)))
    view = table_view(log.log, ALL)
    tail = replace(view.tail, clean_offset=Offset(9_000))
    assert first_table_bytes(replace(view, tail=tail)) == table_bytes(9_010, BY_OFFSET)


def test_records_that_take_more_than_the_answer_may_are_refused_but_not_one_alone() -> None:
    log = CompactedLog()
    log.append((b"a", bytes(100)), (b"b", bytes(100)))
    table = table_of(log, 1 << 20)

    def found(room: Room, *keys: bytes) -> int:
        return len(last_records(log.log, keys, table, room, decompressed_bytes_max=1 << 20))

    room = Room(50)
    with pytest.raises(TooLarge):
        found(room, b"a", b"b")
    assert room == Room(50)
    assert found(room, b"a") == 1
    with pytest.raises(TooLarge):
        found(room, b"b")
    assert found(Room(202), b"a", b"b") == 2


# ---------------------------------------------------------------- what is wrong on the disk


def sidecar_path(log: CompactedLog) -> str:
    return log.log.segments[0].path(KEYS)


def test_a_damaged_sidecar_is_not_trusted_and_left_for_the_next_pass() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.clean()
    path = sidecar_path(log)
    flip(log.fs, path, log.fs.size(path) // 2)

    assert values(LookedUp(), log, b"a", b"b") == [b"1", b"1"]
    assert log.fs.exists(path)


def test_a_sidecar_with_wrong_keys_is_found_out_by_the_record() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.append_segment((b"b", b"1"))
    table = table_of(log, 1 << 20)
    # As if the sidecar had said so.
    wrong = KeyTable(table_view(log.log, ALL), SETTINGS, bytes_max=1 << 20)
    wrong._map.put(b"a", 1)

    with pytest.raises(WrongTable):
        last_records(log.log, [b"a"], wrong, Room(1000), decompressed_bytes_max=1000)
    assert table.offset_of(b"a") == 0


def test_a_damaged_segment_ends_a_lookup() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.append((b"b", b"1"))
    segment: Segment = log.log.segments[0]
    flip(log.fs, segment.path(".log"), segment.size - 1)

    with pytest.raises(CorruptBatch):
        LookedUp().find(log.log, b"b")
