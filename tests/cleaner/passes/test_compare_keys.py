"""Passes that compare the keys of superseded records before these go (`compaction.compare.keys`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cleaner.passes import clean as clean_module
from cleaner.passes.index import IndexedSegment
from cleaner.passes.mark import Marked, mark_window
from cleaner.passes.verify_pass import VerificationFailed
from storage.formats.key_totals import KeyTotals
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import CONFIG, DIRECTORY, SETTINGS, CompactedLog
from tests.harness.damage import flip, log_files
from tests.harness.log_builder import KeyValue, batch_of, valid
from tests.harness.rehearsal import check_prediction
from tests.harness.transactional_producer import TransactionalProducer

COMPARING = replace(CONFIG, compaction_compare_keys=True)


def log_of(*segments: list[KeyValue], config: LogConfig = COMPARING) -> CompactedLog:
    log = CompactedLog(config)
    for pairs in segments:
        log.append_segment(*pairs)
    return log


def many(value: bytes, count: int = 3000) -> list[KeyValue]:
    return [(b"key-%d" % number, value) for number in range(count)]


def mark_also(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Let marking take one more record for superseded, as if another key had its hash."""

    def marked(window: Any, *parts: Any, **named: Any) -> list[Marked]:
        found = mark_window(window, *parts, **named)
        for source, its in zip(window, found, strict=True):
            number = offset - source.row.base_offset
            if 0 <= number < source.totals.entries:
                its.marks[number >> 3] |= 1 << (number & 7)
                its.superseded += 1
        return found

    monkeypatch.setattr(clean_module, "mark_window", marked)


def test_a_pass_removes_the_same_and_tells_how_many_keys_it_compared() -> None:
    segments: list[list[KeyValue]] = [
        [(b"a", b"1"), (b"b", b"1")],
        [(b"a", b"2"), (b"c", None)],
        [(b"b", b"2")],
    ]
    plain, comparing = log_of(*segments, config=CONFIG), log_of(*segments)

    plain.clean()
    report = comparing.clean()

    assert comparing.pairs() == plain.pairs()
    assert comparing.headers() == plain.headers()
    assert report.keys_compared == 2
    assert "; 2 keys compared byte by byte" in str(report)


def test_a_record_without_a_later_one_of_its_key_is_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = log_of([(b"a", b"1"), (b"only", b"1")], [(b"a", b"2")])
    before = log.pairs()
    mark_also(monkeypatch, 1)

    with pytest.raises(
        VerificationFailed, match=r"1 key would lose .* the first at offset 1: two keys"
    ):
        log.clean()

    assert log.pairs() == before
    assert log.log.clean_offset == 0


def test_without_the_setting_it_would_have_been_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([(b"a", b"1"), (b"only", b"1")], [(b"a", b"2")], config=CONFIG)
    mark_also(monkeypatch, 1)

    log.clean()

    assert [key for _, key, _ in log.pairs()] == [b"a"]


def test_the_next_pass_makes_the_key_sidecars_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([(b"a", b"1"), (b"only", b"1")], [(b"a", b"2")])
    with monkeypatch.context() as patch:
        mark_also(patch, 1)
        with pytest.raises(VerificationFailed):
            log.clean()

    report = log.execute(log.plan())

    assert report.sidecars_built == 2
    assert [key for _, key, _ in log.pairs()] == [b"only", b"a"]


@pytest.mark.parametrize("entries", [3, 20])
def test_a_sidecar_with_too_few_or_too_many_entries_is_refused(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is right, so it was wrong when it was written."""
    log = log_of(many(b"1", count=10), [(b"key-0", b"2")])
    totals = KeyTotals(blocks=1, entries=entries, batches=10)

    def marked(window: Any, *parts: Any, **named: Any) -> list[Marked]:
        found = mark_window(window, *parts, **named)
        found[0].marks = found[0].marks[: -(-entries // 8)]
        monkeypatch.setattr(IndexedSegment, "totals", property(lambda _: totals))
        return found

    monkeypatch.setattr(clean_module, "mark_window", marked)

    with pytest.raises(VerificationFailed, match="at offset 0 does not have one entry for each"):
        log.clean()


def test_a_later_record_that_was_aborted_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([(b"a", b"1"), (b"b", b"1")])
    producer = TransactionalProducer(log, 7)
    producer.send((b"a", b"aborted"))
    producer.abort()
    log.append((b"b", b"2"))
    mark_also(monkeypatch, 0)

    with pytest.raises(VerificationFailed, match="the first at offset 0"):
        log.clean()


def test_more_keys_than_fit_in_the_memory_are_compared_in_several_rounds() -> None:
    log = log_of(many(b"1"), many(b"2"))
    log.settings = replace(SETTINGS, dedupe_buffer_size=128 << 10, io_buffer_size=1)

    report = log.clean()

    assert report.keys_compared == 3000
    assert report.bytes_read > 4 * report.bytes_before
    assert [offset for offset, _, _ in log.pairs()] == list(range(3000, 6000))


def test_a_key_of_which_nothing_is_superseded_costs_nothing() -> None:
    segments: list[list[KeyValue]] = [[(b"a", b"1")], [(b"b", b"1")]]
    plain, comparing = log_of(*segments, config=CONFIG), log_of(*segments)

    assert comparing.clean().bytes_read == plain.clean().bytes_read


def test_a_winner_at_a_lower_offset_proves_what_it_outranks() -> None:
    log = CompactedLog(replace(COMPARING, compaction_strategy="timestamp"))
    for time in (5000, 1000, 2000):
        log.append_batch(valid(batch_of([(b"k", b"v")], timestamps=[time])))
    log.append((b"end", b""))

    report = log.clean()

    assert [(offset, key) for offset, key, _ in log.pairs()] == [(0, b"k"), (3, b"end")]
    assert (report.keys_compared, report.outranked) == (1, 2)


def test_a_pass_cleans_around_damage_that_it_meets_while_it_compares() -> None:
    log = log_of([(b"a", b"1")], [(b"a", b"2")], [(b"a", b"3")], [(b"b", b"1")])
    log.clean()
    log.append_segment((b"a", b"4"), (b"b", b"2"))
    plan = log.plan()
    # Its sidecar exists already, so that only the comparison reads it.
    damaged = log.log.segments[0]
    flip(log.fs, log_files(log.fs, DIRECTORY)[0], -1)

    report = log.execute(plan)

    assert [fence.base_offset for fence in report.fences] == [damaged.base_offset]


def test_a_rehearsal_foretells_what_is_read() -> None:
    log = log_of([(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")], [(b"c", b"1")])

    check_prediction(log)
