"""What an erasure needs next, what prevents it, and when its deadline is at risk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.rules.fence import Fence
from cleaner.rules.hold import Hold
from cleaner.rules.pick import Blocker
from protocol.wire.numbers import Offset
from server.erasure.needs import (
    Forecast,
    Holder,
    LogFacts,
    Need,
    Next,
    Risk,
    Tombstone,
    forecast,
    need_of_records,
    need_of_tombstone,
    risk_of,
)

X = 10
FREE = LogFacts(
    name="people-0",
    partition=0,
    obstacle=None,
    clean_offset=0,
    first_uncleanable_offset=20,
    limited_by=Blocker.ACTIVE_SEGMENT,
    limited_until_ms=None,
    log_end_offset=20,
    delete_retention_ms=1000,
)
PAUSED = Holder(partition=0, text="cleaning is paused", remedy="kompakt compact resume")
DUE = Tombstone(is_gone=False, horizon_ms=100)


def records(facts: LogFacts, *, has_tombstone: bool = True) -> Need:
    return need_of_records(facts, X, has_tombstone=has_tombstone)


def tombstone(facts: LogFacts, found: Tombstone = DUE, now_ms: int = 200) -> Need:
    return need_of_tombstone(facts, X, found, now_ms)


def test_records_need_a_pass_over_the_tombstone_then_a_proof() -> None:
    assert records(FREE) == Need(Next.PASS)
    assert records(replace(FREE, clean_offset=X)) == Need(Next.PASS), "it ends before the tombstone"
    assert records(replace(FREE, clean_offset=X + 1)) == Need(Next.PROVE)


def test_a_partition_without_a_tombstone_needs_a_proof_only() -> None:
    assert records(replace(FREE, obstacle=PAUSED), has_tombstone=False) == Need(Next.PROVE)


def test_what_prevents_a_pass_is_named() -> None:
    assert records(replace(FREE, obstacle=PAUSED)) == Need(Next.WAIT, PAUSED)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Blocker.LAST_STABLE_OFFSET, "transaction"),
        (Blocker.MIN_LAG, "min.compaction.lag.ms"),
        (Blocker.MIN_LAG_BYTES, "min.compaction.lag.bytes"),
        (Blocker.HIGH_WATERMARK, "durable"),
        (Blocker.ACTIVE_SEGMENT, "active segment"),
    ],
)
def test_what_limits_a_pass_is_named(limit: Blocker, said: str) -> None:
    facts = replace(FREE, first_uncleanable_offset=X, limited_by=limit, limited_until_ms=77)

    need = records(facts)

    assert need.next is Next.WAIT
    assert need.holder is not None
    assert said in need.holder.text
    assert need.holder.remedy
    assert need.holder.until_ms == 77


FENCE = Fence(
    base_offset=Offset(X),
    end_offset=Offset(X + 5),
    file_version=1,
    size=100,
    reason="its CRC differs",
    since_ms=0,
)


def test_a_damaged_segment_that_may_have_the_key_is_waited_for_and_no_pass_is_tried() -> None:
    fenced = replace(FREE, fence=FENCE)
    for need in (records(fenced), tombstone(fenced)):
        assert need.next is Next.WAIT
        assert need.holder is not None
        assert "its CRC differs" in need.holder.text
        assert "kompakt compact now people-0" in need.holder.remedy, "a repair alone starts no pass"
        assert "kompakt compact explain people-0" in need.holder.remedy

    above = replace(FREE, fence=replace(FENCE, base_offset=Offset(X + 1)))
    assert records(above) == Need(Next.PASS)
    assert tombstone(above) == Need(Next.PASS)

    versions = replace(above, has_versions=True)
    assert records(versions) == Need(Next.PASS)
    assert tombstone(versions).next is Next.WAIT, "it may outrank a record in there"


def test_a_tombstone_waits_for_its_horizon_a_hold_and_something_that_follows() -> None:
    assert tombstone(FREE, Tombstone(is_gone=True)) == Need(Next.PROVE)
    waits = tombstone(FREE, now_ms=99)
    assert waits.holder is not None
    assert waits.holder.until_ms == 100
    held = tombstone(replace(FREE, hold=Hold(offset=Offset(X), by="group g")))
    assert held.holder is not None
    assert "group g" in held.holder.text
    last = tombstone(replace(FREE, log_end_offset=X + 1))
    assert last.holder is not None
    assert "last record" in last.holder.text
    tail = tombstone(replace(FREE, first_uncleanable_offset=X + 1, limited_by=Blocker.MIN_LAG))
    assert tail.holder is not None
    assert "min.compaction.lag.ms" in tail.holder.text
    assert tombstone(replace(FREE, obstacle=PAUSED)) == Need(Next.WAIT, PAUSED)
    assert tombstone(FREE) == Need(Next.PASS)
    assert tombstone(FREE, Tombstone(is_gone=False)) == Need(Next.PASS), "no pass has seen it"


def test_a_forecast_is_the_last_known_end_and_says_if_there_are_unknown_ones() -> None:
    until = Holder(partition=0, text="", remedy="", until_ms=500)
    done, waits, works = Need(Next.NOTHING), Need(Next.WAIT, until), Need(Next.PASS)

    assert forecast([(done, 0)], 100) == Forecast(earliest_ms=100, is_open=False)
    assert forecast([(waits, 50), (done, 0)], 100) == Forecast(earliest_ms=550, is_open=False)
    assert forecast([(works, 1000), (waits, 0)], 100) == Forecast(earliest_ms=1100, is_open=True)
    assert forecast([(done, 0)], 100, [until]) == Forecast(earliest_ms=100, is_open=True)


@pytest.mark.parametrize(
    ("earliest_ms", "is_open", "now_ms", "risk"),
    [
        (0, True, 0, Risk.NONE),
        (0, True, 750, Risk.NONE),
        (0, True, 751, Risk.AT_RISK),
        (999, False, 990, Risk.NONE),
        (1001, False, 0, Risk.AT_RISK),
        (0, False, 1000, Risk.NONE),
        (0, False, 1001, Risk.OVERDUE),
    ],
)
def test_a_deadline_is_at_risk_by_a_late_end_or_an_unknown_one_near_it(
    earliest_ms: int, is_open: bool, now_ms: int, risk: Risk
) -> None:
    found = Forecast(earliest_ms=earliest_ms, is_open=is_open)

    def of(*, is_final: bool) -> Risk:
        return risk_of(found, requested_ms=0, deadline_ms=1000, now_ms=now_ms, is_final=is_final)

    assert of(is_final=False) is risk
    assert of(is_final=True) is Risk.NONE
