from __future__ import annotations

from collections.abc import Iterable

import pytest

from cli.dump.files import section_of
from cli.dump.kinds import Kind, kind_of
from protocol.wire.numbers import Offset, ProducerId
from storage.files.paths import ABORTED_TRANSACTIONS
from storage.state.aborted_transactions import AbortedTransactions
from storage.verify.findings import Check, Severity
from storage.verify.log import verify_log
from tests.harness.compacted_log import DIRECTORY, CompactedLog, identity
from tests.harness.transactional_producer import TransactionalProducer

PATH = f"{DIRECTORY}/{ABORTED_TRANSACTIONS}"


def stopped(*, is_cleaned: bool = False) -> CompactedLog:
    """A log in which producer 1 aborted [0, 1] and [4, 5], and committed [2, 3]."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    for ends in (producer.abort, producer.commit, producer.abort):
        producer.send((b"a", b"1"))
        ends()
    if is_cleaned:
        log.append((b"x", b"1"))
        log.clean()
    log.log.close()
    return log


def found(log: CompactedLog) -> list[tuple[Severity, Check]]:
    report = verify_log(log.fs, identity())
    return [(each.severity, each.check) for each in report.findings]


def rewrite(log: CompactedLog, rows: Iterable[tuple[int, int, int]]) -> None:
    known = [(ProducerId(who), Offset(first), Offset(marker)) for who, first, marker in rows]
    log.fs.write_bytes(PATH, AbortedTransactions(known).encode())


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_sound_file_has_nothing_to_say(is_cleaned: bool) -> None:
    assert found(stopped(is_cleaned=is_cleaned)) == []


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(1, 0, 1)], id="an_abort_is_missing"),
        pytest.param([(1, 0, 1), (2, 4, 5)], id="of_another_producer"),
        pytest.param([(1, 0, 1), (1, 5, 5)], id="it_begins_too_late"),
        pytest.param([(1, 0, 1), (1, 2, 3), (1, 4, 5)], id="what_was_committed"),
    ],
)
def test_a_file_that_would_mislead_a_reader_is_an_error(rows: list[tuple[int, int, int]]) -> None:
    log = stopped()
    rewrite(log, rows)
    assert set(found(log)) == {(Severity.ERROR, Check.TRANSACTIONS)}


def test_a_damaged_file_is_rebuilt_and_so_a_warning() -> None:
    log = stopped()
    log.fs.write_bytes(PATH, b"KABT")
    assert found(log) == [(Severity.WARNING, Check.TRANSACTIONS)]


def test_rows_that_no_reader_needs_are_no_fault() -> None:
    log = stopped(is_cleaned=True)
    rewrite(log, [(1, 0, 1)])
    assert found(log) == []


def test_rows_behind_the_logs_end_are_noted() -> None:
    log = stopped()
    rewrite(log, [(1, 0, 1), (1, 4, 5), (1, 7, 9)])
    assert found(log) == [(Severity.NOTE, Check.TRANSACTIONS)]


def test_the_file_is_printed() -> None:
    fs = stopped().fs
    assert kind_of(fs, PATH) is Kind.ABORTED_TRANSACTIONS
    section = section_of(fs, PATH, Kind.ABORTED_TRANSACTIONS)
    assert list(section.rows) == [
        {"producer_id": 1, "first_offset": 0, "marker_offset": 1},
        {"producer_id": 1, "first_offset": 4, "marker_offset": 5},
    ]


def test_a_missing_file_is_an_error() -> None:
    log = stopped()
    log.fs.unlink(PATH)
    assert found(log) == [(Severity.ERROR, Check.TRANSACTIONS)]
