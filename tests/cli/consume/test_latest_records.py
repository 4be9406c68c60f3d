"""The table of last values: compared with a dict, and when it exceeds its memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.consume.latest_records import LatestRecord, LatestRecords
from storage.formats.compaction_strategy import CompactionStrategy, Ranking

MIB = 1 << 20

KEYS = st.binary(max_size=3)
CHANGES = st.lists(
    st.tuples(st.integers(0, 2), st.none() | KEYS, st.none() | st.binary(max_size=5))
)


def record(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    partition: int = 0,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> LatestRecord:
    return LatestRecord(partition, key, offset, 1000 + offset, value, headers)  # type: ignore[arg-type]


@given(CHANGES, st.integers(1, 7))
def test_what_is_left_is_what_a_dict_holds(
    changes: Sequence[tuple[int, bytes | None, bytes | None]], gathered: int
) -> None:
    expected: dict[tuple[int, bytes], LatestRecord] = {}
    with LatestRecords(memory_bytes=MIB, gathered_records_max=gathered) as latest:
        for offset, (partition, key, value) in enumerate(changes):
            each = record(offset, key, value, partition=partition)
            latest.add([each])
            if key is not None and value is not None:
                expected[partition, key] = each
            elif key is not None:
                expected.pop((partition, key), None)

        assert list(latest) == [expected[name] for name in sorted(expected)]
        assert len(latest) == len(expected)
        assert latest.keyless_count == sum(key is None for _, key, _ in changes)


VERSIONED = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b"]),
        st.none() | st.just(b"v"),
        st.none() | st.integers(-3, 3),
    )
)


@given(VERSIONED, st.integers(1, 5))
def test_where_records_have_versions_the_highest_one_of_a_key_is_left(
    changes: Sequence[tuple[bytes, bytes | None, int | None]], gathered: int
) -> None:
    """A tombstone that is older deletes nothing, and one that is newer still does when others follow."""
    strategy = CompactionStrategy(Ranking.HEADER, "version")
    won: dict[bytes, tuple[tuple[int, int], LatestRecord]] = {}
    with LatestRecords(
        memory_bytes=MIB, strategy=strategy, gathered_records_max=gathered
    ) as latest:
        for offset, (key, value, version) in enumerate(changes):
            headers = () if version is None else (("version", struct.pack(">q", version)),)
            each = record(offset, key, value, headers=headers)
            latest.add([each])
            rank = (-(2**63) if version is None else version, offset)
            won[key] = max(won.get(key, (rank, each)), (rank, each), key=lambda pair: pair[0])

        expected = [won[key][1] for key in sorted(won) if won[key][1].value is not None]
        assert list(latest) == expected
        assert len(latest) == len(expected)
        assert latest.key_bytes_max() == (1 if expected else 0)


def test_headers_are_kept_with_any_bytes() -> None:
    given_headers = (("a", b"\xff\0"), ("a", None), ("é", b""))
    with LatestRecords(memory_bytes=MIB) as latest:
        latest.add([record(0, b"k", b"v", headers=given_headers)])

        assert [each.headers for each in latest] == [given_headers]


def test_more_than_its_memory_is_kept_all_the_same() -> None:
    with LatestRecords(memory_bytes=MIB) as latest:
        for begin in range(0, 20_000, 1000):
            latest.add(record(n, b"%06d" % n, b"v" * 300) for n in range(begin, begin + 1000))

        assert len(latest) == 20_000
        assert [each.offset for each in latest] == list(range(20_000))
        assert latest.key_bytes_max() == 6


@pytest.mark.parametrize("count", [0, 1])
def test_an_empty_table_has_no_width(count: int) -> None:
    with LatestRecords(memory_bytes=MIB) as latest:
        latest.add([record(0, b"k" * 9, None)] * count)

        assert latest.key_bytes_max() == 0
        assert len(latest) == 0
