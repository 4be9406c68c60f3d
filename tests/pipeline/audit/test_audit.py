"""An audit names each fault of a cleaned log, and finds none where there is none."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from cleaner.rules.latest import version_of
from protocol.records.record_batch import Record
from storage.formats.compaction_strategy import CompactionStrategy, Ranking
from tests.harness.table_digest import live_keys, row_hash, table_digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.audit.audit import Audit

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

SCHEMA = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000
OLD_MS, YOUNG_MS = NOW_MS - 2 * RETENTION_MS, NOW_MS - RETENTION_MS + 1

Log: TypeAlias = Sequence[Record]
Told: TypeAlias = tuple[str, bytes, int | None, int | None]
"""Kind, key, offset in the original and in the cleaned log."""


def log(*pairs: tuple[bytes | None, bytes | None]) -> Log:
    return [
        Record(offset=at, timestamp=OLD_MS + at, key=key, value=value, headers=(("n", b"1"),))
        for at, (key, value) in enumerate(pairs)
    ]


ORIGINAL = log(
    (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (None, b"unkeyed"), (b"a", b"2"), (b"d", b"1"),
    (b"d", None), (b"e", b"1"), (b"b", b"2"), (b"f", b"1"),
)  # fmt: skip
END = len(ORIGINAL)
A_1, A_2, D_1, D_GONE, E_1 = (ORIGINAL[at] for at in (0, 4, 5, 6, 7))
CLEANED = [ORIGINAL[at] for at in (2, 4, 7, 8, 9)]


def placed(*records: Record, instead_of: Iterable[Record] = ()) -> Log:
    """The cleaned log with these records at their offsets, and without some."""
    taken = {record.offset for record in (*records, *instead_of)}
    left = [record for record in CLEANED if record.offset not in taken]
    return sorted([*left, *records], key=lambda record: record.offset)


def aged(records: Log, offset: int, timestamp: int) -> Log:
    return [replace(r, timestamp=timestamp) if r.offset == offset else r for r in records]


@dataclass(frozen=True, slots=True)
class Case:
    """A cleaned log beside its original, and what an audit says of them."""

    cleaned: Log
    told: Sequence[Told] = ()
    original: Log = tuple(ORIGINAL)
    start: int = 0
    end: int = END


CASES = {
    "cleaned as it must be": Case(CLEANED),
    "not cleaned at all": Case(ORIGINAL),
    "with a tombstone whose time is not over": Case(placed(D_GONE)),
    "a value changed": Case(placed(replace(A_2, value=b"3")), [("changed", b"a", 4, 4)]),
    "a value became null": Case(placed(replace(A_2, value=None)), [("changed", b"a", 4, 4)]),
    "a timestamp changed": Case(placed(replace(A_2, timestamp=1)), [("changed", b"a", 4, 4)]),
    "a header changed": Case(
        placed(replace(A_2, headers=(("n", b"2"),))), [("changed", b"a", 4, 4)]
    ),
    "a key changed": Case(
        placed(replace(A_2, key=b"x")), [("foreign", b"x", None, 4), ("lost", b"a", 4, None)]
    ),
    "a record lost": Case(placed(instead_of=[E_1]), [("lost", b"e", 7, None)]),
    "the last record lost": Case(placed(instead_of=[ORIGINAL[9]]), [("lost", b"f", 9, None)]),
    "an offset moved up": Case(
        placed(replace(A_2, offset=5), instead_of=[A_2]), [("moved", b"a", 4, 5)]
    ),
    "an offset moved down": Case(
        placed(replace(A_2, offset=1), instead_of=[A_2]), [("moved", b"a", 4, 1)]
    ),
    "order swapped": Case(
        placed(replace(E_1, offset=4), replace(A_2, offset=7)),
        [("reordered", b"e", 7, 4), ("reordered", b"a", 4, 7)],
    ),
    "a record twice": Case(placed(replace(A_2, offset=5)), [("moved", b"a", 4, 5)]),
    "a record that nobody wrote": Case(
        placed(replace(A_2, offset=6, key=b"new")), [("foreign", b"new", None, 6)]
    ),
    "a superseded value revived": Case(placed(A_1, instead_of=[A_2]), [("revived", b"a", 4, 0)]),
    "a deleted value revived": Case(placed(D_1), [("revived", b"d", 6, 5)]),
    "a tombstone gone too early": Case(
        CLEANED, [("tombstone gone early", b"d", 6, None)], original=aged(ORIGINAL, 6, YOUNG_MS)
    ),
    "a tombstone that may just go": Case(CLEANED, original=aged(ORIGINAL, 6, YOUNG_MS - 1)),
    "a log that starts later": Case(placed(instead_of=[ORIGINAL[2]]), start=3),
    "an original that ends earlier": Case(CLEANED, original=ORIGINAL[:5], end=5),
    "lost below where the original ends": Case(
        placed(instead_of=[ORIGINAL[2]]), [("lost", b"c", 2, None)], original=ORIGINAL[:5], end=5
    ),
    "a cleaned log that ends earlier": Case([ORIGINAL[at] for at in (1, 2, 4)], end=5),
}


@pytest.fixture(scope="module")
def audits(session: SparkSession) -> Audit:
    """One audit of all cases, a partition each."""
    from pipeline.audit.audit import audit
    from pipeline.audit.span import Span

    cases = list(CASES.values())
    return audit(
        session,
        frame(session, [case.original for case in cases]),
        frame(session, [case.cleaned for case in cases]),
        {at: Span(start=case.start, end=case.end) for at, case in enumerate(cases)},
        horizon_ms=lambda: NOW_MS - RETENTION_MS,
        differences_max=1000,
    )


def frame(session: SparkSession, logs: Sequence[Log]) -> DataFrame:
    rows: list[tuple[Any, ...]] = [
        (partition, record.offset, time_of(record), record.key, record.value, list(record.headers))
        for partition, records in enumerate(logs)
        for record in records
    ]
    return session.createDataFrame(rows, SCHEMA).repartition(3)


def time_of(record: Record) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record.timestamp)


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_named_and_nothing_else(audits: Audit, name: str) -> None:
    partition, case = list(CASES).index(name), CASES[name]

    told = [
        (each.kind.value, each.key, each.original_offset, each.cleaned_offset)
        for each in audits.differences
        if each.partition == partition
    ]

    assert told == list(case.told)


@pytest.mark.parametrize("name", CASES)
def test_both_sides_have_the_digest_of_their_last_values(audits: Audit, name: str) -> None:
    partition, case = list(CASES).index(name), CASES[name]

    found = audits.partitions[partition]

    for records, side in ((case.original, found.original), (case.cleaned, found.cleaned)):
        within = [record for record in records if case.start <= record.offset < case.end]
        assert side.digest == table_digest(within)
        assert side.keys == live_keys(within)
        assert side.records == sum(record.key is not None for record in within)
    assert found.cleaned.goes_on == any(record.offset >= case.end for record in case.cleaned)
    if not case.told and not found.cleaned.goes_on:
        assert found.original.digest == found.cleaned.digest


def ranked(*sent: tuple[bytes, bytes | None, int | None]) -> Log:
    """Key, value and version: the timestamp's, and the header's, which may be missing."""
    return [
        Record(
            offset=at,
            timestamp=OLD_MS + (version or 0),
            key=key,
            value=value,
            headers=() if version is None else (("v", struct.pack(">q", version)),),
        )
        for at, (key, value, version) in enumerate(sent)
    ]


RANKED = ranked(
    (b"a", b"new", 2), (b"a", b"late", 1), (b"b", b"1", 1), (b"b", b"2", 1),
    (b"c", b"1", 1), (b"c", None, 2), (b"c", b"late", 1),
    (b"d", b"2", 2), (b"d", None, 1), (b"e", b"1", 1), (b"e", b"none", None), (b"f", b"1", 1),
)  # fmt: skip
RANKED_END = len(RANKED)


def of_ranked(*offsets: int, beyond: Sequence[tuple[bytes, int]] = ()) -> Log:
    """These records, and others beyond the end: key and version."""
    later = ranked(*((key, b"beyond", version) for key, version in beyond))
    return [
        *(RANKED[at] for at in offsets),
        *(replace(record, offset=RANKED_END + record.offset) for record in later),
    ]


def ranked_case(
    cleaned: Log, told: Sequence[Told] = (), original: Log = tuple(RANKED), start: int = 0
) -> Case:
    return Case(cleaned, told, original, start, RANKED_END)


RANKED_CASES = {
    "cleaned as it must be": ranked_case(of_ranked(0, 3, 7, 9, 11)),
    "not cleaned at all": ranked_case(RANKED),
    "with late records and a tombstone": ranked_case(of_ranked(0, 1, 3, 5, 6, 7, 8, 9, 10, 11)),
    "cleaned by offset": ranked_case(
        of_ranked(1, 3, 6, 8, 10, 11),
        [
            ("revived", b"a", 0, 1),
            ("revived", b"c", 5, 6),
            ("revived", b"d", 7, 8),
            ("revived", b"e", 9, 10),
        ],
    ),
    "a deleted value revived": ranked_case(of_ranked(0, 3, 4, 7, 9, 11), [("revived", b"c", 5, 4)]),
    "the first of equal versions": ranked_case(
        of_ranked(0, 2, 7, 9, 11), [("revived", b"b", 3, 2)]
    ),
    "a record lost": ranked_case(of_ranked(3, 7, 9, 11), [("lost", b"a", 0, None)]),
    "superseded beyond the end": ranked_case(of_ranked(1, 3, 9, 11, beyond=[(b"a", 3), (b"d", 2)])),
    "a late record beyond the end supersedes nothing": ranked_case(
        of_ranked(3, 7, 9, 11, beyond=[(b"a", 1)]), [("lost", b"a", 0, None)]
    ),
    "superseded below the start": ranked_case(of_ranked(3, 7, 9, 11), start=1),
    "superseded below the start of the original": ranked_case(
        of_ranked(0, 3, 7, 9, 11), original=RANKED[1:], start=1
    ),
    "an equal version below the start supersedes nothing": ranked_case(
        of_ranked(7, 9, 11), [("lost", b"b", 3, None)], start=3
    ),
}
RANKINGS = {
    "timestamp": CompactionStrategy(Ranking.TIMESTAMP),
    "header": CompactionStrategy(Ranking.HEADER, "v"),
}


@pytest.fixture(scope="module")
def ranked_audits(session: SparkSession) -> Mapping[str, Audit]:
    """An audit of all cases by each strategy, a partition each."""
    from pipeline.audit.audit import audit
    from pipeline.audit.span import Span

    cases = list(RANKED_CASES.values())
    return {
        name: audit(
            session,
            frame(session, [case.original for case in cases]),
            frame(session, [case.cleaned for case in cases]),
            {at: Span(start=case.start, end=case.end) for at, case in enumerate(cases)},
            strategy=strategy,
            horizon_ms=lambda: NOW_MS - RETENTION_MS,
            differences_max=1000,
        )
        for name, strategy in RANKINGS.items()
    }


@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("name", RANKED_CASES)
def test_the_last_record_of_a_key_is_the_one_of_the_highest_version(
    ranked_audits: Mapping[str, Audit], name: str, ranking: str
) -> None:
    partition, case = list(RANKED_CASES).index(name), RANKED_CASES[name]
    found = ranked_audits[ranking]

    told = [
        (each.kind.value, each.key, each.original_offset, each.cleaned_offset)
        for each in found.differences
        if each.partition == partition
    ]

    assert told == list(case.told)
    within = [each for each in case.cleaned if case.start <= each.offset < case.end]
    side = found.partitions[partition].cleaned
    assert side.digest == ranked_digest(within, RANKINGS[ranking])
    assert side.records == len(within)


def ranked_digest(records: Log, strategy: CompactionStrategy) -> int:
    """Returns the digest of the records that the cleaner's rule takes for the last of their keys."""

    def rank(record: Record) -> tuple[int, int]:
        version = version_of(strategy, timestamp=record.timestamp, headers=record.headers)
        return version, record.offset

    last = {record.key: record for record in sorted(records, key=rank)}
    return sum(row_hash(each) for each in last.values() if each.value is not None) % (1 << 128)


def test_all_are_counted_and_the_first_are_listed(session: SparkSession) -> None:
    from pipeline.audit.audit import Kind, counted, listed

    rows = [(kind.value, 0, b"k", 9 - at, None) for at, kind in enumerate(Kind)]
    schema = "kind STRING, partition INT, key BINARY, original_offset BIGINT, cleaned_offset BIGINT"
    found = session.createDataFrame([*rows, rows[0]], schema)

    assert counted(found) == dict.fromkeys(Kind, 1) | {Kind.CHANGED: 2}
    assert [each.original_offset for each in listed(found, 2)] == [3, 4]
