"""The walk over a batch's records, against a slower one and against bytes that nobody should send."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.records.batch_header import read_header
from protocol.records.compression import Buffer
from protocol.records.record import read_record
from protocol.records.record_batch import Record, build_batch
from protocol.records.record_walk import UNFIT_MAX, RecordWalk, scan_records
from protocol.wire.errors import CorruptBatch
from tests.harness.examples import examples

HEADER_BYTES = 61


def batch_of(*keys: bytes | None) -> bytes:
    records = [
        Record(offset=index, timestamp=1000 + index, key=key, value=b"value")
        for index, key in enumerate(keys)
    ]
    return bytes(build_batch(records))


def find_keyless(records: Buffer, count: int, *, dense: bool = True) -> int:
    return scan_records(records, count, base_timestamp=0, dense=dense).first_keyless


KEYS = st.none() | st.binary(max_size=20)


@given(st.lists(st.tuples(KEYS, KEYS, st.lists(st.tuples(st.text(max_size=3), KEYS), max_size=2)),
                min_size=1, max_size=80))  # fmt: skip
@settings(deadline=None)
def test_first_keyless_is_the_index_of_the_first_null_key(
    contents: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    records = [
        Record(offset=index, timestamp=index * 100, key=key, value=value, headers=tuple(headers))
        for index, (key, value, headers) in enumerate(contents)
    ]
    expected = next((index for index, record in enumerate(records) if record.key is None), -1)
    assert find_keyless(build_batch(records)[HEADER_BYTES:], len(records)) == expected


def plain_records(*keys: bytes | None) -> bytes:
    return batch_of(*keys)[HEADER_BYTES:]


def test_an_empty_key_is_a_key() -> None:
    assert find_keyless(plain_records(b"", b"b"), 2) == -1


def test_no_records_have_no_keyless_one() -> None:
    assert find_keyless(b"", 0) == -1


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_wrong_record_count_is_a_corrupt_batch(count: int) -> None:
    with pytest.raises(CorruptBatch):
        find_keyless(plain_records(b"a", b"b"), count)


def test_records_behind_the_first_keyless_one_are_checked_too() -> None:
    records = plain_records(None, b"b", b"c")
    assert find_keyless(records, 3) == 0
    with pytest.raises(CorruptBatch, match="record 2 of 3 is cut off"):
        find_keyless(records[:-1], 3)


# length | attributes | timestamp delta | offset delta | key | value | headers
@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param("0e 00 00 00 02 6b 01 00", None, id="sound_with_null_value"),
        pytest.param("", "cut off", id="nothing"),
        pytest.param("80", "cut off", id="length_without_an_end"),
        pytest.param("00", "length that its fields", id="length_0"),
        pytest.param("01", "length that its fields", id="length_-1"),
        pytest.param("10 00 00 00 02 6b 01 00", "cut off", id="length_beyond_the_end"),
        pytest.param("80 80 80 80 10 00", "cut off", id="length_of_33_bits"),
        pytest.param("8e 80 80 80 80 00", "cut off", id="length_of_six_bytes"),
        pytest.param("02 00", "length that its fields", id="only_attributes"),
        pytest.param(
            "18 00 ff ff ff ff ff ff ff ff ff 02 00", "length that its", id="timestamp_of_65_bits"
        ),
        pytest.param("0e 00 00 00 04 6b 6b 00", "has headers", id="value_eats_the_header_count"),
        pytest.param("0e 00 00 00 14 6b 01 00", "a key", id="key_beyond_the_record"),
        pytest.param("0e 00 00 00 03 6b 01 00", "a key", id="key_length_-2"),
        pytest.param("0e 00 00 00 02 6b 14 00", "a value", id="value_beyond_the_record"),
        pytest.param("0e 00 00 00 02 6b 03 00", "a value", id="value_length_-2"),
        pytest.param("0e 00 00 00 02 6b 01 01", "has headers", id="header_count_-1"),
        pytest.param("0e 00 00 00 02 6b 01 02", "has headers", id="header_missing"),
        pytest.param(
            "14 00 00 00 02 6b 01 fe ff ff 0f", "has headers", id="16_million_headers_announced"
        ),
        pytest.param("12 00 00 00 02 6b 01 02 01 01", "has headers", id="header_without_a_key"),
        pytest.param("10 00 00 00 02 6b 01 00 00", "belong to no field", id="trailing_byte"),
        pytest.param("0e 00 00 02 02 6b 01 00", "out of place", id="offset_delta_1"),
        pytest.param("0e 00 00 01 02 6b 01 00", "out of place", id="offset_delta_-1"),
    ],
)
def test_each_fault_of_a_record_is_named(record: str, message: str | None) -> None:
    if message is None:
        assert find_keyless(bytes.fromhex(record), 1) == -1
        return
    with pytest.raises(CorruptBatch, match=message):
        find_keyless(bytes.fromhex(record), 1)


def test_offset_deltas_of_a_compacted_batch_may_leave_gaps_but_must_grow() -> None:
    def compacted(*offsets: int) -> bytes:
        records = [
            build_batch([Record(offset=offset, timestamp=0, key=b"k", value=b"")])[HEADER_BYTES:]
            for offset in offsets
        ]
        return b"".join(bytes(record) for record in records)

    assert find_keyless(compacted(2, 5, 9), 3, dense=False) == -1
    assert scan_records(compacted(2, 5, 9), 3, base_timestamp=0, dense=False).last_offset_delta == 9
    for offsets in ((2, 5, 9), (1, 2), (0, 2)):
        with pytest.raises(CorruptBatch, match="out of place"):
            find_keyless(compacted(*offsets), len(offsets))
    with pytest.raises(CorruptBatch, match="record 1 has offset delta 5, out of place"):
        find_keyless(compacted(5, 5), 2, dense=False)


TIMESTAMPS = st.sampled_from((-1, 0, 5)) | st.integers(-(2**62), 2**62)


@given(
    st.lists(st.tuples(KEYS, TIMESTAMPS), min_size=1, max_size=60),
    TIMESTAMPS,
    TIMESTAMPS,
    st.booleans(),
)
@example(contents=[(None, -(2**62)), (None, 2**62)], one=0, other=0, keyed=False)
@settings(deadline=None)
def test_every_record_that_is_keyless_or_untimely_is_named(
    contents: list[tuple[bytes | None, int]], one: int, other: int, keyed: bool
) -> None:
    oldest, youngest = min(one, other), max(one, other)
    records = [
        Record(offset=index, timestamp=timestamp, key=key, value=b"v")
        for index, (key, timestamp) in enumerate(contents)
    ]
    batch = build_batch(records)
    expected: list[tuple[int, int | None]] = []
    for index, (key, timestamp) in enumerate(contents):
        if keyed and key is None:
            expected.append((index, None))
        elif timestamp != -1 and not oldest <= timestamp <= youngest:
            expected.append((index, timestamp))

    walk = RecordWalk(
        len(records),
        base_timestamp=read_header(batch).base_timestamp,
        keyed=keyed,
        timestamp_from=oldest,
        timestamp_to=youngest,
    )
    walk.feed(batch[HEADER_BYTES:])
    found = walk.finish()

    assert list(found.unfit) == expected
    assert found.unfit_count == len(expected)
    assert found.untimely_count == sum(timestamp is not None for _, timestamp in expected)
    assert found.youngest_timestamp == max(timestamp for _, timestamp in contents)
    assert found.last_offset_delta == len(records) - 1


def test_of_many_unfit_records_the_first_are_named_and_all_are_counted() -> None:
    records = plain_records(*[None] * (UNFIT_MAX + 7))
    walk = RecordWalk(UNFIT_MAX + 7, base_timestamp=0, keyed=True)
    walk.feed(records)
    found = walk.finish()
    assert found.unfit == tuple((index, None) for index in range(UNFIT_MAX))
    assert (found.unfit_count, found.untimely_count) == (UNFIT_MAX + 7, 0)


def test_a_timestamp_that_overflows_wraps_as_in_java() -> None:
    records = plain_records(b"a")
    assert scan_records(records, 1, base_timestamp=2**63 - 1).youngest_timestamp == 2**63 - 1
    delta = bytes.fromhex("0e 00 02 00 02 6b 01 00")  # a timestamp delta of 1

    assert scan_records(delta, 1, base_timestamp=2**63 - 1).youngest_timestamp == -(2**63)


def python_reads(records: bytes, count: int) -> list[Record] | None:
    view, position, read = memoryview(records), 0, []
    try:
        for _ in range(count):
            record, position = read_record(view, position, base_offset=0, base_timestamp=0)
            read.append(record)
    except CorruptBatch:
        return None
    in_place = all(record.offset == index for index, record in enumerate(read))
    return read if position == len(records) and in_place else None


@given(st.data())
@settings(max_examples=examples(500), deadline=None)
def test_compiled_and_plain_reader_accept_the_same_records(data: st.DataObject) -> None:
    """A few damaged bytes: both refuse, or both see the same keys."""
    headers = (("h", b"x"), ("", None))
    count = data.draw(st.integers(1, 4))
    records = [
        Record(offset=index, timestamp=data.draw(st.integers(-(2**40), 2**40)),
               key=data.draw(KEYS), value=data.draw(KEYS), headers=headers[: index % 3])
        for index in range(count)
    ]  # fmt: skip
    plain = build_batch(records)[HEADER_BYTES:]
    for _ in range(data.draw(st.integers(0, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))

    oracle = python_reads(bytes(plain), count)

    if oracle is None:
        with pytest.raises(CorruptBatch):
            find_keyless(plain, count)
    else:
        keyless = [index for index, record in enumerate(oracle) if record.key is None]
        assert find_keyless(plain, count) == (keyless[0] if keyless else -1)


@given(st.binary(max_size=200), st.integers(0, 5))
@settings(max_examples=examples(300))
def test_random_records_raise_nothing_but_corrupt_batch(noise: bytes, count: int) -> None:
    oracle = python_reads(noise, count)
    if oracle is None:
        with pytest.raises(CorruptBatch):
            find_keyless(noise, count)
    else:
        find_keyless(noise, count)


# --------------------------------------------------------------------- windows

HEADERS = (("h", b"x" * 200), ("", None))
Found = tuple[int, int, int, tuple[tuple[int, int | None], ...]]


def walked(windows: Sequence[bytes], count: int, *, dense: bool) -> Found | None:
    """What a walk over these windows finds; None if it refuses them."""
    walk = RecordWalk(count, base_timestamp=7, dense=dense, keyed=True, timestamp_to=2**40)
    try:
        for window in windows:
            walk.feed(window)
        scan = walk.finish()
    except CorruptBatch:
        return None
    return scan.last_offset_delta, scan.first_keyless, scan.youngest_timestamp, scan.unfit


@st.composite
def records_with_damage(draw: st.DrawFn) -> tuple[bytes, int]:
    count = draw(st.integers(1, 5))
    records = [
        Record(
            offset=index,
            timestamp=draw(st.integers(-(2**50), 2**50)),
            key=draw(KEYS),
            value=draw(KEYS | st.just(b"v" * 300)),
            headers=HEADERS[: index % 3],
        )
        for index in range(count)
    ]
    plain = build_batch(records)[HEADER_BYTES:]
    for _ in range(draw(st.integers(0, 2))):
        plain[draw(st.integers(0, len(plain) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.sampled_from([0, 0, 0, 1, 9]))
    return bytes(plain[: len(plain) - cut]), draw(st.sampled_from([count, count, count, count + 1]))


@given(
    records_with_damage() | st.tuples(st.binary(max_size=200), st.integers(0, 5)),
    st.lists(st.integers(0, 1500), max_size=8),
    st.booleans(),
)
@settings(max_examples=examples(1000), deadline=None)
def test_windows_cut_anywhere_tell_what_the_whole_tells(
    case: tuple[bytes, int], cuts: list[int], dense: bool
) -> None:
    plain, count = case
    borders = [0, *sorted(min(cut, len(plain)) for cut in cuts), len(plain)]
    windows = [plain[a:b] for a, b in pairwise(borders)]
    one_by_one = [plain[at : at + 1] for at in range(len(plain))]
    whole = walked([plain], count, dense=dense)
    assert walked(windows, count, dense=dense) == whole
    assert walked(one_by_one, count, dense=dense) == whole


def test_a_walk_that_has_failed_fails_for_good() -> None:
    walk = RecordWalk(1, base_timestamp=0)
    for again in (lambda: walk.feed(b"\x01"), lambda: walk.feed(b"\x00"), walk.finish):
        with pytest.raises(CorruptBatch):
            again()


def test_a_record_may_be_larger_than_any_window() -> None:
    plain = bytes(
        build_batch([Record(offset=0, timestamp=7, key=b"k" * 100_000, value=b"v" * 300_000)])
    )[HEADER_BYTES:]
    windows = [plain[at : at + 4096] for at in range(0, len(plain), 4096)]
    assert walked(windows, 1, dense=True) == (0, -1, 7, ())
    assert walked(windows[:-1], 1, dense=True) is None
    assert walked([*windows, b"\0"], 1, dense=True) is None
