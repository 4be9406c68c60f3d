"""The compiled kernel, case by case: indexing, mapping and marking.

tests/properties/test_kernel_against_rule.py compares its results on random logs with the rule.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from cleaner.kernel.kernel import (
    KeyIndexer,
    OffsetMap,
)
from cleaner.rules.step import IndexStep, MapStep, MapTally, MarkStep
from protocol.records.control_record import ControlType
from protocol.wire.errors import CorruptBatch
from tests.cleaner.kernel_calls import (
    ABC,
    block_of,
    filter_of,
    index_chunk,
    map_block,
    mark_block,
)
from tests.cleaner.kernel_log import (
    HASH_KEY,
    LogBatch,
    LogRecord,
    encode,
    log_batch,
    marker_batch,
)
from tests.cleaner.kernel_steps import assert_blocks_hold, index_log, mark_log, walk_log

# -------------------------------------------------------------------- indexing


def test_indexing_says_how_many_bytes_a_cut_batch_needs() -> None:
    data = encode(log_batch(0, (b"a", b"1")))

    for cut in range(1, len(data)):
        assert index_chunk(data[:cut]) == IndexStep(
            consumed_bytes=0, needed_bytes=61 if cut < 17 else len(data), block=None
        )


def test_a_block_speaks_for_the_whole_batches_of_a_chunk() -> None:
    batches = [
        log_batch(0, (b"a", b"1"), (b"b", None), (None, b"3")),
        replace(log_batch(3, (b"c", b"")), is_transactional=True, producer_id=8),
        marker_batch(4, 8, ControlType.COMMIT),
        replace(log_batch(5, (b"a", b"1")), records=()),
    ]
    data = b"".join(map(encode, batches))
    indexed = index_log(data)

    assert len(indexed.blocks) == 1
    assert_blocks_hold(indexed)
    assert index_chunk(data + b"cut").consumed_bytes == len(data)


def test_a_batch_of_another_segment_is_corruption() -> None:
    far, near = log_batch(2**31, (b"a", b"1")), log_batch(4, (b"a", b"1"))
    indexer = KeyIndexer(HASH_KEY, base_offset=5, decompressed_bytes_max=0)

    for batch in (near, replace(far, base_offset=2**31 + 5, last_offset=2**31 + 5)):
        with pytest.raises(CorruptBatch, match="out of order, or of another segment"):
            indexer.feed(encode(batch))


def test_an_indexer_wants_a_sixteen_byte_key_and_an_offset() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        KeyIndexer(b"short", base_offset=0, decompressed_bytes_max=0)
    with pytest.raises(ValueError, match="negative"):
        KeyIndexer(HASH_KEY, base_offset=-1, decompressed_bytes_max=0)


# -------------------------------------------------------------------- mapping and marking


def test_mapping_counts_what_it_put() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    assert map_block(ABC, offset_map) == MapStep(entries=3, put=3, is_full=False)
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.size) == (3, 1, 2)


def test_a_segments_base_offset_is_added() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    map_block(ABC, offset_map, base_offset=2**40, end_offset=2**41)

    assert offset_map.get(b"a") == 2**40 + 3


def test_mapping_takes_only_the_range() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    assert map_block(ABC, offset_map, start_offset=1, end_offset=3).put == 1
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (None, 1)


def test_a_map_that_is_full_says_so_and_half_the_part_fits() -> None:
    keys = [b"%d" % number for number in range(100)]
    block = block_of(encode(log_batch(0, *((key, b"v") for key in keys))))
    offset_map = OffsetMap(24 * 200, HASH_KEY)
    offset_map.clear(70)
    assert map_block(block, offset_map).is_full

    for part in range(2):
        offset_map.clear(70, part=part, parts=2)
        assert not map_block(block, offset_map).is_full
        assert 0 < offset_map.size < 70


def test_a_full_map_still_takes_later_records_of_its_keys() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.clear(2)

    assert not map_block(ABC, offset_map).is_full
    assert not map_block(ABC, offset_map, base_offset=10).is_full
    assert offset_map.get(b"a") == 13


def test_marking_sets_the_bits_of_superseded_records_behind_the_first_entry() -> None:
    offset_map, marks = OffsetMap(1 << 12, HASH_KEY), bytearray(3)
    map_block(ABC, offset_map)

    step = mark_block(ABC, offset_map, marks, first_entry=7)

    assert step == MarkStep(superseded=1, met=MapTally(count=2, offset_sum=4), unknown=0)
    assert marks == bytes([1 << 7, 0, 0])


def test_a_record_that_the_map_should_know_is_counted_as_unknown() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.put(b"a", 1)

    step = mark_block(ABC, offset_map, bytearray(1), start_offset=2)

    # b at 1 lies before the map's start; a at 3 is later than the map's offset.
    assert (step.superseded, step.unknown) == (1, 1)


def test_what_is_past_the_end_gets_no_mark() -> None:
    offset_map, marks = OffsetMap(1 << 12, HASH_KEY), bytearray(1)
    offset_map.put(b"a", 500)
    offset_map.put(b"b", 500)

    assert mark_block(ABC, offset_map, marks, end_offset=1).superseded == 1
    assert marks == b"\x01"


@pytest.mark.parametrize(("size", "first_entry"), [(0, 0), (1, 6), (9, -1), (9, 2**63 - 1)])
def test_marks_that_are_too_few_are_refused(size: int, first_entry: int) -> None:
    with pytest.raises(ValueError, match="too few"):
        mark_block(ABC, OffsetMap(1 << 12, HASH_KEY), bytearray(size), first_entry=first_entry)


def test_marks_must_be_writable() -> None:
    with pytest.raises((ValueError, BufferError), match=r"read-only|writable"):
        mark_block(ABC, OffsetMap(1 << 12, HASH_KEY), bytes(1))


def test_aborted_records_are_neither_mapped_nor_marked() -> None:
    batches = [
        log_batch(0, (b"a", b"1")),
        replace(log_batch(1, (b"a", b"2"), (b"a", b"3")), is_transactional=True, producer_id=8),
        marker_batch(3, 8, ControlType.ABORT),
    ]
    indexed = index_log(b"".join(map(encode, batches)))
    transactions = walk_log(indexed, start_offset=0, end_offset=4)

    marked = mark_log(indexed, end_offset=4, transactions=transactions)

    assert (marked.superseded, marked.met, marked.unknown) == (0, 1, 0)


# -------------------------------------------------------------------- the GIL


def big_log() -> bytes:
    records = [
        LogRecord(offset=i, timestamp=1_000, key=b"%d" % (i % 999), value=b"v" * 999)
        for i in range(20_000)
    ]
    return encode(LogBatch(base_offset=0, last_offset=19_999, records=tuple(records)))


@pytest.mark.parametrize("step", ["index", "map", "mark", "filter"])
def test_other_threads_run_while_the_kernel_works(step: str) -> None:
    """With this switch interval, threads change only when one releases the GIL itself."""
    log = big_log()
    block, offset_map = block_of(log), OffsetMap(1 << 20, HASH_KEY)
    runs: dict[str, Callable[[], object]] = {
        "index": lambda: index_chunk(log, decompressed_bytes_max=1 << 30),
        "map": lambda: map_block(block, offset_map, end_offset=10**6),
        "mark": lambda: mark_block(block, offset_map, bytearray(2_500)),
        "filter": lambda: filter_of(marks=bytes(2_500)).feed(log, block),
    }
    entered, noticed = threading.Event(), threading.Event()
    deadline = time.monotonic() + 10

    def work() -> None:
        entered.set()
        while not noticed.is_set() and time.monotonic() < deadline:
            runs[step]()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        entered.wait()
        # If the kernel kept the GIL, this thread would run only once the worker has ended.
        noticed.set()
        assert time.monotonic() < deadline
        worker.join()
    finally:
        sys.setswitchinterval(interval)
