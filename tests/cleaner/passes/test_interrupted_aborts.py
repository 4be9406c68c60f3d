"""Aborted transactions of which interrupted passes have left only some: a reader misses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from storage.segment.reader import Isolation
from tests.cleaner.transactions_seen import later
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.log_builder import headers_in, records_in
from tests.harness.transactional_producer import TransactionalProducer


def log_of_groups() -> CompactedLog:
    """Returns a log of several groups. The first has an aborted transaction, the second has one of the
    same producer that is committed."""
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    producer = TransactionalProducer(log, 1)
    producer.send((b"aborted", b"1" * 40))
    producer.abort()
    log.append((b"f", b"0" * 40))
    log.roll()
    producer.send((b"kept", b"v"))
    producer.commit()
    log.append((b"g", b"0" * 40))
    log.roll()
    for _ in range(4):
        log.append_segment((b"f", b"1" * 40), (b"g", b"1" * 40))
    return log


def clean_one_group(log: CompactedLog) -> None:
    """Begin a pass that is interrupted behind its first swap."""
    before = log.log.segments[0].file_version

    def has_swapped(_seconds: float) -> bool:
        return log.log.segments[0].file_version != before

    with pytest.raises(CleaningAborted):
        log.execute(log.plan(), stop=has_swapped)
    assert has_swapped(0)


def committed_keys(log: CompactedLog) -> list[bytes | None]:
    """Returns the keys that a client with read_committed delivers, answer by answer."""
    found: list[bytes | None] = []
    offset = 0
    while data_and_aborted := answer(log, Offset(offset)):
        data, aborted = data_and_aborted
        found += delivered(data, aborted)
        offset = headers_in(data)[-1].next_offset
    return found


def answer(log: CompactedLog, offset: Offset) -> tuple[bytes, list[tuple[int, int]]] | None:
    """Returns the batches and aborted transactions of one answer; None at the end of the log."""
    read = log.log.reader.read(
        offset, max_bytes=1 << 30, whole_first_batch=True, isolation=Isolation.READ_COMMITTED
    )
    assert not isinstance(read, ErrorCode)
    try:
        data = b"".join(region.read_bytes() for region in read.regions)
    finally:
        read.release()
    return (data, sorted(read.aborted, key=lambda each: each[1])) if data else None


def delivered(data: bytes, aborted: Sequence[tuple[int, int]]) -> list[bytes | None]:
    """Returns the keys that the Java client delivers of an answer: from a transaction's first offset on
    it skips the producer, up to an ABORT marker (CompletedFetch.java)."""
    skipped: set[int] = set()
    waiting, found = list(aborted), []
    for header in headers_in(data):
        while waiting and waiting[0][1] <= header.last_offset:
            skipped.add(waiting.pop(0)[0])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found += [
                record.key
                for record in records_in(data)
                if header.base_offset <= record.offset <= header.last_offset
            ]
    return found


@pytest.mark.parametrize("restarts", [False, True])
def test_a_row_goes_with_its_marker_though_the_pass_is_not_over(restarts: bool) -> None:
    log = log_of_groups()
    clean_one_group(log)
    assert b"kept" in committed_keys(log)
    if restarts:
        log.reopen(is_clean=False)
    later(log)

    clean_one_group(log)

    assert not [each for each in log.headers() if each.is_control and each.last_offset < 3]
    assert b"kept" in committed_keys(log)
    log.clean()
    assert b"kept" in committed_keys(log)
    assert b"aborted" not in committed_keys(log)
