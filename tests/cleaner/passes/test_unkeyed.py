"""Records without a key are moved to another topic before a pass drops them, or stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cleaner.pacing.meter import CleaningAborted
from cleaner.passes import unkeyed as unkeyed_module
from cleaner.passes.unkeyed import ChunkTooLarge, UnkeyedMove
from cleaner.passes.verify_pass import VerificationFailed
from protocol.records.record import Record
from protocol.records.record_batch import Codec
from storage.files.paths import LOG
from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import records_of
from tests.harness.transactional_producer import TransactionalProducer
from tests.harness.unkeyed_log import MOVES, MovingLog


def mixed_log() -> MovingLog:
    """Records without a key at 0, 2, 3 and 5; the last one of all has a key."""
    log = MovingLog()
    log.append((None, b"zero"), (b"a", b"1"))
    log.roll()
    log.append((None, b"two"), (None, None), codec=Codec.LZ4)
    log.roll()
    log.append((b"a", b"2"), (None, b"five"))
    log.append((b"b", b"1"))
    return log


MIXED = [(0, b"zero"), (2, b"two"), (3, None), (5, b"five")]


def test_they_are_in_the_other_topic_and_no_longer_here() -> None:
    log = mixed_log()

    report = log.run_pass()

    assert log.unkeyed() == []
    assert log.aside.origins() == MIXED
    assert report.unkeyed_moved == report.records_by_verdict["dropped_unkeyed"] == 4
    assert (report.unkeyed_topic, report.unkeyed_kept_because) == ("aside", "")
    assert "4 records without a key moved to aside" in str(report)
    assert [key for _, key, _ in log.pairs()] == [b"a", b"b"]


def test_a_moved_record_says_where_it_comes_from() -> None:
    log = mixed_log()
    log.run_pass()

    (first, *_) = records_of(log.aside.log)

    assert (first.key, first.value, first.timestamp) == (None, b"zero", log.now_ms)
    assert dict(first.headers) == {
        "kompakt.origin.topic": b"orders",
        "kompakt.origin.topic.id": b"AAAAAAAAAAAAAAAAAAAAAQ",
        "kompakt.origin.partition": b"0",
        "kompakt.origin.offset": b"0",
        "kompakt.origin.timestamp": str(records_timestamp()).encode(),
    }


def records_timestamp() -> int:
    (record, *_) = mixed_log().records()
    return record.timestamp


def test_a_later_pass_moves_only_what_came_since() -> None:
    log = mixed_log()
    log.run_pass()
    log.append((None, b"seven"), (b"a", b"3"))

    report = log.run_pass()

    assert report.unkeyed_moved == 1
    assert log.aside.origins() == [*MIXED, (7, b"seven")]


def test_they_stay_while_the_other_topic_takes_none() -> None:
    log = mixed_log()
    log.aside.refuses = lambda _: True

    report = log.run_pass()

    assert log.unkeyed() == MIXED
    assert log.aside.origins() == []
    assert report.unkeyed_moved == 0
    assert report.records_by_verdict["kept_unkeyed"] == 4
    assert report.unkeyed_kept_because == "a test says so"
    assert "records without a key stay: a test says so" in str(report)
    assert [value for _, key, value in log.pairs() if key == b"a"] == [b"2"], "the rest is cleaned"

    log.aside.refuses = lambda _: False
    assert log.run_pass().unkeyed_moved == 4, "the next pass tries again"
    assert (log.unkeyed(), log.aside.origins()) == ([], MIXED)


@pytest.mark.parametrize("at", [16, 64], ids=["magic", "records"])
def test_beside_a_damaged_segment_they_stay_and_the_rest_is_cleaned(at: int) -> None:
    """A fence may hold the marker of their transaction: the pass would keep what it has moved."""
    log = mixed_log()
    log.roll()
    path = log.log.segments[1].path(LOG)
    data = log.fs.read_bytes(path)
    log.fs.overwrite(path, at, bytes([data[at] ^ 0xFF]))

    for _ in range(2):
        report = log.run_pass()
        assert len(report.fences) == 1
        assert "may hold the outcome" in report.unkeyed_kept_because

    assert log.aside.origins() == []
    log.fs.overwrite(path, at, data[at : at + 1])
    assert log.unkeyed() == MIXED
    assert log.run_pass().unkeyed_moved == 4


def test_damage_that_a_key_sidecar_hides_is_met_while_records_are_moved() -> None:
    log = mixed_log()
    log.aside.refuses = lambda _: True
    log.run_pass()
    log.aside.refuses = lambda _: False
    path = log.log.segments[1].path(LOG)
    data = log.fs.read_bytes(path)
    log.fs.overwrite(path, 16, bytes([data[16] ^ 0xFF]))

    report = log.run_pass()

    assert len(report.fences) == 1
    log.fs.overwrite(path, 16, data[16:17])
    assert log.unkeyed() == MIXED


def test_they_stay_if_nothing_can_move_them() -> None:
    log = mixed_log()

    log.clean()

    assert log.unkeyed() == MIXED


def test_after_the_first_refusal_a_pass_tries_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unkeyed_module, "CHUNK_RECORDS", 1)
    log = mixed_log()
    asked: list[int] = []

    def refuses(records: Sequence[Record]) -> bool:
        asked.extend(record.offset for record in records)
        return records[0].offset == 2

    log.aside.refuses = refuses
    report = log.run_pass()

    assert asked == [0, 2]
    assert {*log.unkeyed(), *log.aside.origins()} == {*MIXED}
    assert report.unkeyed_moved == 1


def test_a_chunk_that_is_too_large_is_halved_and_one_record_that_is_too_large_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = mixed_log()
    chunks = []
    move = log.aside.move

    def bounded(records: Sequence[Record]) -> None:
        if len(records) > 1 or records[0].value == b"five":
            raise ChunkTooLarge("aside-0: too large")
        chunks.append(len(records))
        move(records)

    monkeypatch.setattr(log.aside, "move", bounded)
    report = log.run_pass()

    assert set(chunks) == {1}
    assert report.unkeyed_kept_because == "aside-0: too large"
    assert {*log.unkeyed(), *log.aside.origins()} == {*MIXED}


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MovingLog(replace(MOVES, segment_bytes=1 << 30))
    for number in range(10):
        log.append((None, b"%d" % number * 100))
    log.append((b"a", b"1"))
    sizes: list[int] = []
    move = log.aside.move

    def counted(records: Sequence[Record]) -> None:
        sizes.append(len(records))
        move(records)

    monkeypatch.setattr(log.aside, "move", counted)
    monkeypatch.setattr(unkeyed_module, "CHUNK_BYTES", 300)

    log.run_pass()

    assert sizes == [3, 3, 3, 1]


def test_the_last_record_of_a_pass_stays_and_is_not_moved() -> None:
    log = MovingLog()
    log.append((b"a", b"1"), (None, b"one"))

    assert log.run_pass().unkeyed_moved == 0
    assert log.unkeyed() == [(1, b"one")]

    log.append((b"b", b"1"))
    assert log.run_pass().unkeyed_moved == 1
    assert (log.unkeyed(), log.aside.origins()) == ([], [(1, b"one")])


def test_records_of_an_aborted_transaction_are_dropped_and_not_moved() -> None:
    log = MovingLog()
    producer = TransactionalProducer(log, 7)
    producer.send((None, b"aborted"))
    producer.abort()
    producer.send((None, b"committed"))
    producer.commit()
    log.append((b"a", b"1"))

    log.run_pass()

    assert [value for _, value in log.aside.origins()] == [b"committed"]
    assert log.unkeyed() == []


def test_a_topic_that_drops_or_keeps_them_moves_none() -> None:
    for setting in ("drop", "keep"):
        log = MovingLog(replace(MOVES, compaction_unkeyed_records=setting))
        log.append((None, b"zero"), (b"a", b"1"))
        report = log.run_pass()

        assert (report.unkeyed_moved, report.unkeyed_topic) == (0, "")
        assert log.aside.origins() == []


def test_what_would_be_dropped_without_having_been_moved_is_not_swapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug, in the rule or in the kernel, must not lose records."""
    log = mixed_log()
    monkeypatch.setattr(UnkeyedMove, "move", lambda *_: True)

    with pytest.raises(VerificationFailed, match="4 records without a key would be dropped, and 0"):
        log.run_pass()

    assert log.unkeyed() == MIXED


@pytest.mark.parametrize(
    "change",
    [{"compaction_unkeyed_records": "drop"}, {"compaction_unkeyed_topic": "another"}],
    ids=lambda change: next(iter(change)),
)
def test_a_pass_ends_when_the_setting_changes(change: dict[str, Any]) -> None:
    log = mixed_log()
    log.roll()
    plan = log.plan()
    log.log.update_config(replace(MOVES, **change))

    with pytest.raises(CleaningAborted):
        log.run_pass(plan)

    assert log.unkeyed() == MIXED


def test_to_move_needs_a_topic() -> None:
    with pytest.raises(ConfigError, match=r"needs compaction\.unkeyed\.topic"):
        LogConfig.from_overrides({"compaction.unkeyed.records": "move"}, LogConfig())
