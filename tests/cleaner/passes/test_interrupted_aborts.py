"""Readers of committed records miss nothing while an aborted transaction has a marker without records.

An interrupted pass leaves such a marker above the clean offset, with a delete horizon. A mirror copies
one from a source that has cleaned between two fetches.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from tests.cleaner.transactions_seen import horizons, later
from tests.harness.compacted_log import CONFIG, CompactedLog, read_bytes
from tests.harness.log_builder import headers_in, run_of
from tests.harness.log_transactions import committed_offsets
from tests.harness.transactional_producer import TransactionalProducer

ABORTED, ABORT, KEPT = 0, 1, 3


SMALL_SEGMENTS = replace(CONFIG, segment_bytes=200)


def log_of_groups() -> CompactedLog:
    """Returns a log whose first group has an aborted transaction, and whose second one has a committed
    transaction of the same producer."""
    log = CompactedLog(SMALL_SEGMENTS)
    producer = TransactionalProducer(log, 1)
    assert producer.send((b"aborted", b"1" * 40)) == ABORTED
    assert producer.abort() == ABORT
    log.append((b"f", b"0" * 40))
    log.roll()
    assert producer.send((b"kept", b"v")) == KEPT
    producer.commit()
    log.append((b"g", b"0" * 40))
    log.roll()
    append_groups(log)
    return log


def append_groups(log: CompactedLog) -> None:
    """Append segments of which a pass drops a half each, so that it does not merge them all."""
    for number in range(4):
        log.append_segment((b"k%d" % number, b"1" * 40), (b"f", b"1" * 40), (b"g", b"1" * 40))


def interrupt_pass(log: CompactedLog, *, swaps: int) -> None:
    """Begin a pass that is interrupted behind so many swaps."""
    seen = set[tuple[int, ...]]()

    def has_swapped(_seconds: float) -> bool:
        seen.add(tuple(segment.file_version for segment in log.log.segments))
        return len(seen) > swaps

    with pytest.raises(CleaningAborted):
        log.execute(log.plan(), stop=has_swapped)


@pytest.mark.parametrize("restarts", [False, True])
def test_two_interrupted_passes_leave_the_marker(restarts: bool) -> None:
    log = log_of_groups()
    interrupt_pass(log, swaps=1)
    assert ABORT in horizons(log)
    if restarts:
        log.reopen(is_clean=False)
    append_groups(log)
    later(log)

    interrupt_pass(log, swaps=1)

    assert KEPT in delivered(log)
    assert ABORT in horizons(log)


def test_passes_to_the_end_remove_the_marker() -> None:
    log = log_of_groups()
    interrupt_pass(log, swaps=1)
    later(log)

    log.clean()
    assert ABORT in horizons(log)
    log.execute(log.plan())

    assert ABORT not in horizons(log)
    assert KEPT in delivered(log)
    assert ABORTED not in delivered(log)


def test_a_mirror_keeps_the_marker_that_its_source_has_cleaned_between_two_fetches() -> None:
    source = log_of_groups()
    mirror = CompactedLog(SMALL_SEGMENTS)
    copy_batches(source, mirror, end_offset=ABORT)
    source.clean()
    copy_batches(source, mirror, end_offset=source.log.log_end_offset)
    append_groups(mirror)
    later(mirror)

    interrupt_pass(mirror, swaps=2)

    assert KEPT in delivered(mirror)
    assert ABORT in horizons(mirror)


def copy_batches(source: CompactedLog, mirror: CompactedLog, *, end_offset: int) -> None:
    """Append the source's next batches below `end_offset` to the mirror, and roll."""
    while (offset := mirror.log.log_end_offset) < end_offset:
        data = read_bytes(source.log, offset)
        mirror.log.appender.append_as_follower(
            run_of(data[: headers_in(data)[0].size_bytes]), now_ms=0
        )
    mirror.make_durable()
    mirror.roll()


def delivered(log: CompactedLog) -> list[int]:
    """Returns the offsets that a client returns which reads the whole log in one answer."""
    return committed_offsets(log.log, max_bytes=1 << 20)
