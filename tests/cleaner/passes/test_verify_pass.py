"""A pass whose output, map or account is wrong replaces nothing and says what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import cleaner.passes.key_parts
import cleaner.passes.recopy
from cleaner.kernel.kernel import BatchFilter, OffsetMap, map_keys
from cleaner.passes.mark import Marked
from cleaner.passes.verify_pass import VerificationFailed, check_account, check_hold, check_part
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.step import GroupAccount, MapStep, MapTally
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Codec, Record, build_batch, read_records
from protocol.wire.numbers import Offset
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow
from storage.log.cleaning import LogCleaning
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from tests.harness.compacted_log import CONFIG, HASH_KEY, SETTINGS, CompactedLog
from tests.harness.log_builder import PLENTY

Tamper = Callable[[list[bytes]], list[bytes]]


def log_of_all_kinds(codec: Codec = Codec.NONE) -> CompactedLog:
    """Returns a log whose batches are rebuilt with a tombstone, emptied, dropped, and (two) copied."""
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"1"), (b"c", None), (b"d", b"2"), codec=codec)
    log.append((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0)
    log.append((b"a", b"3"))
    log.append((b"a", b"4"), (b"e", b"1"))
    log.append((b"f", b"1"))
    log.roll()
    return log


class TamperedWriter:
    """A writer that tampers with the output on its way to the disk."""

    def __init__(
        self,
        writer: CleanedSegmentWriter,
        tamper: Tamper,
        change_row: Callable[[SegmentRow], SegmentRow],
    ) -> None:
        self.writer = writer
        self.tamper = tamper
        self.change_row = change_row
        self.data = b""

    def append(self, data: memoryview, index_entries: memoryview) -> None:
        self.data += bytes(data)

    def append_keys(self, block: bytes, *, keys_checked: bool) -> None:
        """Writes no sidecar, because it would not match the tampered output."""

    def finish(self, row: SegmentRow, _totals: KeyTotals | None) -> CleanedSegment:
        for batch in self.tamper(batches_of(self.data)):
            self.writer.append(batch, memoryview(b"").cast("q"))
        return self.writer.finish(self.change_row(row))

    def discard(self) -> None:
        self.writer.discard()


def batches_of(data: bytes) -> list[bytes]:
    batches, position = [], 0
    while position < len(data):
        size = read_header(data, position).size_bytes
        batches.append(data[position : position + size])
        position += size
    return batches


def as_it_is(row: SegmentRow) -> SegmentRow:
    return row


def untouched(batches: list[bytes]) -> list[bytes]:
    return batches


def refuse_to_swap(
    log: CompactedLog,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tamper: Tamper = untouched,
    change_row: Callable[[SegmentRow], SegmentRow] = as_it_is,
) -> str:
    """Clean with a fault, and check that nothing was replaced. Returns the error's message."""
    before, rows = log.records(), [segment.row() for segment in log.log.segments]
    new_segment = LogCleaning.new_cleaned_segment

    def tampered(self: object, base_offset: int, strategy: CompactionStrategy) -> TamperedWriter:
        return TamperedWriter(
            new_segment(log.log.cleaning, Offset(base_offset), strategy), tamper, change_row
        )

    with monkeypatch.context() as patch:
        patch.setattr(LogCleaning, "new_cleaned_segment", tampered)
        with pytest.raises(VerificationFailed) as failure:
            log.execute(log.plan())
    assert log.records() == before
    assert [segment.row() for segment in log.log.segments] == rows
    assert not [name for name in log.files() if name.endswith(".cleaned")]
    log.clean()  # No file is left that would disturb the next pass.
    return str(failure.value)


# -------------------------------------------------------------------- the output


def rewritten(batch: bytes, change: Callable[[list[Record]], list[Record]]) -> bytes:
    """Returns the batch with other records and a matching CRC."""
    header = read_header(batch)
    return bytes(
        build_batch(
            change(read_records(batch, decompressed_bytes_max=PLENTY)),
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            delete_horizon_ms=header.delete_horizon_ms,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
    )


def records(change: Callable[[list[Record]], list[Record]], batch: int = 0) -> Tamper:
    def tamper(batches: list[bytes]) -> list[bytes]:
        changed = rewritten(batches[batch], change)
        return [changed if number == batch else each for number, each in enumerate(batches)]

    return tamper


def first(change: Callable[[Record], Record]) -> Callable[[list[Record]], list[Record]]:
    return lambda kept: [change(kept[0]), *kept[1:]]


def flip(batch: int, position: int) -> Tamper:
    def tamper(batches: list[bytes]) -> list[bytes]:
        data = bytearray(batches[batch])
        data[position] ^= 1
        return [bytes(data) if number == batch else each for number, each in enumerate(batches)]

    return tamper


FAULTS = {
    "flipped_byte_in_a_rebuilt_batch": (flip(0, -3), "CRC differs"),
    "flipped_byte_in_a_copied_batch": (flip(3, -1), "CRC differs"),
    "flipped_leader_epoch_of_a_copied_batch": (flip(3, 15), "digest"),
    "flipped_leader_epoch_of_a_rebuilt_batch": (flip(0, 15), "digest"),
    "flipped_producer_of_an_emptied_batch": (flip(1, 50), "CRC differs"),
    "moved_base_offset": (flip(3, 7), "file ends at offset"),
    "dropped_record": (records(lambda kept: kept[:-1]), "records"),
    "extra_record": (records(lambda kept: [replace(kept[0], offset=0), *kept]), "records"),
    "wrong_value": (records(first(lambda each: replace(each, value=b"x"))), "digest"),
    "wrong_key": (records(first(lambda each: replace(each, key=b"x"))), "digest"),
    "wrong_timestamp": (records(first(lambda each: replace(each, timestamp=1))), "digest"),
    "wrong_headers": (records(first(lambda each: replace(each, headers=(("h", b""),)))), "digest"),
    "wrong_offset": (records(first(lambda each: replace(each, offset=0))), "offsets"),
    "swapped_values": (
        records(lambda kept: [replace(kept[0], value=kept[-1].value), *kept[1:-1],
                              replace(kept[-1], value=kept[0].value)]),
        "digest",
    ),
    "wrong_value_in_a_copied_batch": (
        records(first(lambda each: replace(each, value=b"x")), batch=3),
        "digest",
    ),
    "dropped_batch": (lambda batches: batches[:1] + batches[2:], "batches|digest|horizon"),
    "dropped_last_batch": (lambda batches: batches[:-1], "records|timestamp"),
    "duplicate_batch": (lambda batches: [*batches, batches[-1]], "do not follow"),
    "extra_batch": (
        lambda batches: [*batches, rewritten(batches[-1], lambda kept: kept)[:7] + b"\x63"
                         + batches[-1][8:]],
        "more batches",
    ),
    "swapped_batches": (lambda batches: [batches[1], batches[0], *batches[2:]], "damaged|digest|follow"),
    "nothing_at_all": (lambda batches: [], "records"),
}  # fmt: skip


@pytest.mark.parametrize(("tamper", "reason"), FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=["plain", "zstd"])
def test_a_wrong_output_is_not_swapped_in(
    tamper: Tamper, reason: str, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = refuse_to_swap(log_of_all_kinds(codec), monkeypatch, tamper=tamper)

    assert any(each in found for each in reason.split("|")), found


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"record_count": 1}, id="records"),
        pytest.param({"control_count": 1}, id="controls"),
        pytest.param({"tombstone_count": 0}, id="tombstones"),
        pytest.param({"tombstone_bytes": 0}, id="tombstone_bytes"),
        pytest.param({"tombstones_due_ms": 5}, id="tombstones_due"),
        pytest.param({"max_timestamp": 5}, id="max_timestamp"),
        pytest.param({"offset_of_max_timestamp": 7}, id="its_offset"),
        pytest.param({"least_delete_horizon_ms": -1}, id="horizon"),
        pytest.param({"end_offset": 8}, id="end"),
    ],
)
def test_a_miscounted_row_is_not_committed(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_swap(log_of_all_kinds(), monkeypatch, change_row=lambda row: replace(row, **changes))


# -------------------------------------------------------------------- the map

OFFSETS = {b"a": 6, b"b": 1, b"c": 2, b"d": 3, b"e": 7, b"f": 8}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({b"a": None}, "later than the offset map's entry", id="lost"),
        pytest.param({b"a": 4}, "later than the offset map's entry", id="older"),
        pytest.param({b"b": 5}, "were found as records", id="newer"),
        pytest.param({b"never": 5}, "were found as records", id="one_too_many"),
        pytest.param({b"b": 3, b"d": 1}, "later than the offset map's entry", id="exchanged"),
    ],
)
def test_a_wrong_map_replaces_nothing(
    changes: dict[bytes, int | None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(block: memoryview, offset_map: OffsetMap, **bounds: Any) -> MapStep:
        step = map_keys(block, offset_map, **bounds)
        assert {key: offset_map.get(key) for key in OFFSETS} == OFFSETS
        offset_map.clear()
        for key, offset in (OFFSETS | changes).items():
            if offset is not None:
                offset_map.put(key, offset)
        return step

    log = log_of_all_kinds()
    before = log.records()
    monkeypatch.setattr(cleaner.passes.key_parts, "map_keys", wrong)

    with pytest.raises(VerificationFailed, match=reason):
        log.execute(log.plan())

    assert log.records() == before
    assert not [name for name in log.files() if name.endswith(".cleaned")]


class LossyMap:
    """A map that loses an entry after it was put; no call can do that to a real map."""

    tally = MapTally(count=1, offset_sum=3)

    def tally_slots(self, bounds: object) -> tuple[MapTally, ...]:
        return (MapTally(count=0, offset_sum=0),)


def test_a_map_whose_slots_lost_an_entry_is_found_before_the_first_group() -> None:
    with pytest.raises(VerificationFailed, match="holds 0 entries"):
        check_part(LossyMap(), [SegmentRow(base_offset=0, file_version=1, end_offset=9)], [])  # type: ignore[arg-type]


@pytest.mark.parametrize("bit", [0, 2, 6])
def test_a_mark_too_many_or_too_few_replaces_nothing(
    bit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit flips between marking and recopying."""
    log = log_of_all_kinds()
    before = log.records()
    run = cleaner.passes.recopy.Recopy.run

    def flipped(self: object, group: list[tuple[object, Marked]], **keywords: int) -> object:
        group[0][1].marks[bit >> 3] ^= 1 << (bit & 7)
        return run(self, group, **keywords)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(cleaner.passes.recopy.Recopy, "run", flipped)
        with pytest.raises(VerificationFailed, match="records found superseded"):
            log.execute(log.plan())

    assert log.records() == before
    assert not [name for name in log.files() if name.endswith(".cleaned")]


def test_each_window_is_compared_with_its_own_share_of_the_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_BYTES_MIN", 1)
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_SHARE", 1000)
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    log.settings = replace(SETTINGS, dedupe_buffer_size=24 * 16)
    for number in range(6):
        log.append_segment((b"a", b"%d" % number * 40), (b"%d" % number, b"v"))

    report = log.execute(log.plan())

    assert (report.groups, report.is_verified) == (5, True)


# -------------------------------------------------------------------- the books


def empty_account() -> GroupAccount:
    return BatchFilter(
        HASH_KEY,
        end_offset=0,
        tail_offset=-1,
        now_ms=0,
        delete_retention_ms=0,
        decompressed_bytes_max=PLENTY,
    ).account


def test_a_record_that_is_neither_kept_nor_dropped_is_missed() -> None:
    rows = [log_of_all_kinds().plan().view.segments[0].row]
    account = empty_account()

    check_account(account, rows, 0)
    with pytest.raises(VerificationFailed, match="1 record read, but 0 kept or dropped"):
        check_account(replace(account, records_read=1), rows, 0)
    with pytest.raises(VerificationFailed, match="0 records found superseded, 1 marked"):
        check_account(replace(account, marked=1), rows, 0)
    kept = replace(account, marked=1, records_read=1, records_by_verdict={Verdict.KEPT_TAIL: 1})
    check_account(kept, rows, 1)


def test_a_tombstone_that_was_dropped_although_it_is_held_is_noticed() -> None:
    account = empty_account()
    rows = [SegmentRow(base_offset=Offset(0), file_version=1, end_offset=Offset(9))]

    check_hold(account, rows, 0)
    check_hold(replace(account, expired_offset_max=4), rows, 5)
    with pytest.raises(VerificationFailed, match="at offset 5 was dropped, but they are held from"):
        check_hold(replace(account, expired_offset_max=5), rows, 5)


# -------------------------------------------------------------------- the setting


def test_verification_can_be_turned_off() -> None:
    log = log_of_all_kinds()
    log.settings = replace(SETTINGS, verify=False)

    report = log.execute(log.plan())

    assert not report.is_verified
    sidecar_bytes = report.bytes_written - report.bytes_after
    assert report.bytes_read - 2 * report.bytes_before < 4 * sidecar_bytes
