"""The compiled search for expired values, compared with its specification."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.kernel.expired_keys import ExpiredKeys
from cleaner.kernel.kernel import KeyIndexer
from cleaner.rules.expiry import NEVER, expires_ms, is_unreadable
from cleaner.rules.latest import NO_VERSION, Rank, version_of, wins
from cleaner.rules.step import Expired
from protocol.records.batch_header import TimestampType
from protocol.records.record import Record
from protocol.records.record_batch import Codec, build_batch, build_batch_around, read_records
from protocol.wire.errors import CorruptBatch
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking
from storage.formats.compaction_ttl import CompactionTtl
from storage.formats.config_property import LONG_MAX

HASH_KEY = bytes(range(16))
PLENTY = 1 << 20
STRATEGIES = [
    BY_OFFSET,
    CompactionStrategy(Ranking.TIMESTAMP),
    CompactionStrategy(Ranking.HEADER, "version"),
]
TTL = CompactionTtl(5, "ttl")
NOW_MS = 20


@dataclass(frozen=True)
class Batch:
    """A batch of the log; `producer` is -1 for one without a transaction."""

    records: tuple[Record, ...]
    producer: int = -1
    codec: Codec = Codec.NONE
    append_time: int | None = None

    @property
    def stamped(self) -> tuple[Record, ...]:
        """The records with the timestamps that count."""
        if self.append_time is None:
            return self.records
        return tuple(replace(each, timestamp=self.append_time) for each in self.records)

    def encode(self) -> bytes:
        kind = TimestampType.CREATE_TIME
        if self.append_time is not None:
            kind = TimestampType.LOG_APPEND_TIME
        return bytes(
            build_batch(
                self.records,
                base_offset=self.records[0].offset,
                codec=self.codec,
                producer_id=self.producer,
                producer_epoch=-1 if self.producer < 0 else 0,
                is_transactional=self.producer >= 0,
                timestamp_type=kind,
                max_timestamp=self.append_time,
            )
        )


headers = st.lists(
    st.one_of(
        st.tuples(
            st.just("ttl"),
            st.sampled_from(
                [b"0", b"3", b"9", b"30", b"", b"-1", b"x", None, b"9" * 19, b"9" * 20]
            ),
        ),
        st.tuples(st.just("version"), st.integers(-2, 4).map(lambda each: struct.pack(">q", each))),
        st.tuples(st.sampled_from(["version", "tt"]), st.sampled_from([b"12", None])),
    ),
    max_size=3,
).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    batches, offset = list[Batch](), draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 8))):
        records = []
        for _ in range(draw(st.integers(1, 4))):
            record = Record(
                offset=offset,
                timestamp=draw(st.integers(-1, 24)),
                key=draw(st.sampled_from([b"a", b"b", b"", b"long" * 5, None])),
                value=draw(st.sampled_from([b"v", b"", None])),
                headers=draw(headers),
            )
            records.append(record)
            offset += draw(st.integers(1, 2))
        batches.append(
            Batch(
                tuple(records),
                producer=draw(st.sampled_from([-1, -1, 7, 8])),
                codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP])),
                append_time=draw(st.sampled_from([None, None, 3, 17])),
            )
        )
        offset += draw(st.integers(0, 1))
    return batches


def keys_over(
    strategy: CompactionStrategy,
    *,
    start_offset: int = 0,
    stable_offset: int = LONG_MAX,
    aborted: Sequence[tuple[int, int, int]] = (),
    keys_max: int = 1000,
    ttl: CompactionTtl = TTL,
) -> ExpiredKeys:
    keys = ExpiredKeys(
        HASH_KEY,
        now_ms=NOW_MS,
        start_offset=start_offset,
        stable_offset=stable_offset,
        ttl=ttl,
        strategy=strategy,
        aborted=aborted,
        decompressed_bytes_max=PLENTY,
        keys_max=keys_max,
        key_bytes_max=PLENTY,
    )
    keys.begin()
    return keys


def written(keys: ExpiredKeys) -> list[Expired]:
    """Returns the values of the candidates that are left, by offset."""
    keys.retract()
    if keys.write_tombstones(now_ms=NOW_MS, count_max=1000, bytes_max=PLENTY) is None:
        return []
    found = keys.written_expired()
    keys.retract()
    return sorted(found, key=lambda each: each.offset)


@given(
    log=logs(),
    strategy=st.sampled_from(STRATEGIES),
    aborted_from=st.integers(0, 30),
    span=st.tuples(st.integers(0, 10), st.integers(5, 40)),
    stable_offset=st.integers(5, 40),
    start_offset=st.integers(0, 10),
    keys_max=st.sampled_from([1, 2, 1000]),
    by_blocks=st.booleans(),
)
@settings(max_examples=80)
def test_it_leaves_the_expired_values_that_nothing_outranks(
    log: list[Batch],
    strategy: CompactionStrategy,
    aborted_from: int,
    span: tuple[int, int],
    stable_offset: int,
    start_offset: int,
    keys_max: int,
    by_blocks: bool,
) -> None:
    aborted = [(7, aborted_from, aborted_from + 9)]
    from_offset, end_offset = max(span[0], start_offset), min(span[1], stable_offset)

    def is_aborted(batch: Batch) -> bool:
        return batch.producer == 7 and aborted_from <= batch.records[0].offset < aborted_from + 9

    def rank(record: Record) -> Rank:
        version = version_of(strategy, timestamp=record.timestamp, headers=record.headers)
        return Rank(version, record.offset)

    counting = [
        (batch, record)
        for batch in log
        for record in batch.stamped
        if record.key is not None and not is_aborted(batch)
    ]
    values = [
        record
        for _, record in counting
        if from_offset <= record.offset < end_offset and record.value is not None
    ]
    moments = [expires_ms(TTL, timestamp=each.timestamp, headers=each.headers) for each in values]
    expired = [each for each, moment in zip(values, moments, strict=True) if moment <= NOW_MS]
    left, held = list[Expired](), list[int]()
    for record in expired:
        winners = [
            (batch, other)
            for batch, other in counting
            if other.key == record.key
            and other.offset >= start_offset
            and wins(rank(other), rank(record))
        ]
        undecided = [
            other
            for batch, other in winners
            if (batch.producer >= 0 and other.offset >= stable_offset)
            or (other.value is None and other.offset < record.offset)
        ]
        if not winners:
            assert record.key is not None
            left.append(Expired(record.key, record.offset, rank(record).version))
        elif undecided:
            held.append(record.offset)

    keys = keys_over(
        strategy,
        start_offset=start_offset,
        stable_offset=stable_offset,
        aborted=aborted,
        keys_max=keys_max,
    )
    data = b"".join(batch.encode() for batch in log)
    found, deferred = list[Expired](), list[int]()
    keys.collect_between(from_offset, end_offset)
    while True:
        assert keys.collect(data).consumed_bytes == len(data)
        assert keys.candidates_left <= keys_max
        if by_blocks:
            base_offset = log[0].records[0].offset
            indexer = KeyIndexer(
                HASH_KEY,
                base_offset=base_offset,
                decompressed_bytes_max=PLENTY,
                strategy=strategy,
            )
            block = indexer.feed(data).block
            assert block is not None
            keys.compare_keys(block, base_offset=base_offset)
        else:
            keys.compare(data)
            assert keys.compared_end == log[-1].records[-1].offset + 1
        found += written(keys)
        left_now = {each.offset for each in found}
        deferred += [each for each in keys.deferred_offsets() if each not in left_now]
        if not keys.is_full:
            break
        keys.begin()

    assert sorted(found, key=lambda each: each.offset) == left
    # Once no candidate is left, nothing more is compared; so one may be deferred that has lost for good.
    assert set(deferred) <= set(held)
    assert keys.expired == len(expired)
    assert keys.unreadable == sum(is_unreadable(TTL, each.headers) for each in values)
    later = [moment for moment in moments if moment > NOW_MS]
    assert keys.take_least_later_ms() == min(later, default=NEVER)
    assert keys.take_least_later_ms() == NEVER


def one(
    key: bytes, offset: int = 3, *, timestamp: int = 7, headers: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    record = Record(offset=offset, timestamp=timestamp, key=key, value=b"v", headers=headers)
    return Batch((record,)).encode()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_tombstone_names_the_value_and_has_its_version(strategy: CompactionStrategy) -> None:
    keys = keys_over(strategy)
    version = struct.pack(">q", -5)
    keys.collect_between(0, 100)
    keys.collect(one(b"a", headers=(("version", version),)) + one(b"b", 4, timestamp=9))

    tombstones = keys.write_tombstones(now_ms=NOW_MS, count_max=10, bytes_max=PLENTY)

    assert tombstones is not None
    batch = build_batch_around(
        tombstones.records,
        record_count=tombstones.count,
        timestamp=tombstones.base_timestamp,
        max_timestamp=tombstones.max_timestamp,
    )
    first, second = read_records(batch, decompressed_bytes_max=PLENTY)
    assert (first.key, first.value, second.key, second.value) == (b"a", None, b"b", None)
    has_version = strategy.ranking is Ranking.HEADER
    expected = (("kompakt.expired", b"3"), *([("version", version)] if has_version else []))
    assert first.headers == expected
    # A value without a version has the lowest one; so has its tombstone.
    assert second.headers == (("kompakt.expired", b"4"),)
    times = (7, 9) if strategy.ranking is Ranking.TIMESTAMP else (NOW_MS, NOW_MS)
    assert (first.timestamp, second.timestamp) == times
    assert tombstones.max_timestamp == max(times)
    assert (
        keys.written_expired()[1].version
        == {
            Ranking.OFFSET: 0,
            Ranking.TIMESTAMP: 9,
            Ranking.HEADER: NO_VERSION,
        }[strategy.ranking]
    )


def test_a_batch_is_stale_once_one_of_its_keys_has_a_later_record() -> None:
    keys = keys_over(BY_OFFSET)
    keys.collect_between(0, 100)
    keys.collect(one(b"a") + one(b"b", 4) + one(b"c", 5))
    assert keys.write_tombstones(now_ms=NOW_MS, count_max=2, bytes_max=PLENTY) is not None

    keys.compare(one(b"c", 6))
    assert not keys.is_stale
    keys.compare(one(b"b", 7))
    assert keys.is_stale

    keys.retract()
    tombstones = keys.write_tombstones(now_ms=NOW_MS, count_max=2, bytes_max=PLENTY)
    assert tombstones is not None
    assert [each.key for each in keys.written_expired()] == [b"a"]
    keys.appended()
    assert keys.write_tombstones(now_ms=NOW_MS, count_max=2, bytes_max=PLENTY) is None
    assert keys.candidates_left == 0


def test_batches_are_bounded_by_count_and_by_bytes() -> None:
    keys = keys_over(BY_OFFSET)
    keys.collect_between(0, 100)
    keys.collect(b"".join(one(b"key-%d" % number, number) for number in range(9)))

    counts = list[int]()
    for bounds in ({"count_max": 2, "bytes_max": PLENTY}, {"count_max": 9, "bytes_max": 1}):
        tombstones = keys.write_tombstones(now_ms=NOW_MS, **bounds)
        assert tombstones is not None
        counts.append(tombstones.count)
        keys.appended()

    assert counts == [2, 1]
    assert keys.candidates_left == 6


def test_damage_is_reported_with_its_place() -> None:
    data = bytearray(one(b"a"))
    data[-1] ^= 1

    keys = keys_over(BY_OFFSET)
    keys.collect_between(0, 100)
    with pytest.raises(CorruptBatch, match="position 500"):
        keys.collect(bytes(data), position=500)


def test_a_hash_key_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        ExpiredKeys(
            b"short",
            now_ms=0,
            start_offset=0,
            stable_offset=0,
            ttl=TTL,
            strategy=BY_OFFSET,
            aborted=(),
            decompressed_bytes_max=1,
            keys_max=1,
            key_bytes_max=1,
        )
