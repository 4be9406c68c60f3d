"""Which records without a key are moved: those that the specification of a pass drops for that."""

from __future__ import annotations

import uuid
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cleaner.rules.record_verdict import (
    AbortedTransaction,
    PassBounds,
    Verdict,
    retain_batch,
)
from cleaner.rules.unkeyed import UnkeyedRule, with_origin
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch
from storage.formats.topic_partition import TopicPartition
from tests.cleaner.kernel_log import PlainOffsetMap

ORDERS = TopicPartition("orders", 3)


def test_the_origin_comes_after_the_headers_that_a_record_has() -> None:
    record = Record(offset=7, timestamp=5, key=None, value=b"v", headers=(("a", None), ("a", b"")))

    moved = with_origin(record, ORDERS, uuid.UUID(int=1), now_ms=1000)

    assert (moved.key, moved.value, moved.timestamp) == (None, b"v", 1000)
    assert moved.headers[:2] == record.headers
    assert dict(moved.headers[2:]) == {
        "kompakt.origin.topic": b"orders",
        "kompakt.origin.topic.id": b"AAAAAAAAAAAAAAAAAAAAAQ",
        "kompakt.origin.partition": b"3",
        "kompakt.origin.offset": b"7",
        "kompakt.origin.timestamp": b"5",
    }


@given(
    keys=st.lists(st.sampled_from([None, b"a"]), min_size=1, max_size=6),
    base=st.integers(0, 5),
    end=st.integers(0, 12),
    producer=st.sampled_from([-1, 7, 8]),
    aborted=st.lists(
        st.builds(
            AbortedTransaction,
            producer_id=st.sampled_from([7, 8]),
            first_offset=st.integers(0, 6),
            marker_offset=st.integers(0, 12),
        ),
        max_size=3,
    ),
    seed=st.integers(0, 100),
)
def test_what_is_moved_is_what_a_pass_drops_for_the_lack_of_a_key(
    keys: list[bytes | None],
    base: int,
    end: int,
    producer: int,
    aborted: list[AbortedTransaction],
    seed: int,
) -> None:
    offsets = sorted(Random(seed).sample(range(base, base + 8), len(keys)))
    records = [
        Record(offset=offset, timestamp=1, key=key, value=b"v")
        for offset, key in zip(offsets, keys, strict=True)
    ]
    header = read_header(
        build_batch(
            records,
            base_offset=base,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=0 if producer >= 0 else -1,
            is_transactional=producer >= 0,
        )
    )
    bounds = PassBounds(
        end_offset=end, tail_offset=end - 1, now_ms=0, delete_retention_ms=0, aborted=aborted
    )
    remains = retain_batch(header, records, offset_map=PlainOffsetMap({}, end), bounds=bounds)

    moved = UnkeyedRule(end_offset=end, aborted=aborted).moved(header, records)

    assert moved == [
        record
        for record, verdict in zip(records, remains.verdicts, strict=True)
        if verdict is Verdict.DROPPED_UNKEYED
    ]
