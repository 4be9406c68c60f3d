"""Sidecars with valid checksums and wrong content: one pass fails, the next one works.

They were wrong when they were written, and records were marked by them. When the segment is rewritten,
every entry and every special row is compared with its record. The group is not swapped in, and the
sidecar is removed and rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cleaner.passes.verify_pass import VerificationFailed
from protocol.records.record_batch import Codec
from storage.files.paths import KEYS, join
from tests.harness.compacted_log import DIRECTORY, CompactedLog
from tests.harness.key_blocks import index
from tests.harness.sidecar_lies import (
    LIES_OF_ENTRIES,
    LIES_OF_ROWS,
    Change,
    places_of_entries,
    places_of_rows,
    tell,
)
from tests.harness.transactional_producer import TransactionalProducer

HASH_KEY = bytes(range(16))
Places = Callable[[bytes], list[tuple[slice, slice]]]


def log_of_everything() -> CompactedLog:
    """Returns one segment with all kinds of batches; some go at once, some only after a horizon."""
    log = CompactedLog()
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    log.append((b"a", b"1"), (b"b", b"1"), (b"t", None), codec=Codec.ZSTD)
    one.send((b"c", b"1"), (b"a", b"2"))
    two.send((b"d", b"1"))
    one.commit()
    two.abort()
    log.append((b"b", b"2"), (None, b"unkeyed"))
    log.append((b"a", b"3"), (b"e", b"1"))
    return log


def dirty_log() -> CompactedLog:
    """Returns a dirty log, whose sidecar an earlier, unfinished pass has made."""
    log = log_of_everything()
    log.roll()
    for segment in log.log.cleaning_view().segments:
        index(segment, HASH_KEY)
    return log


def log_cleaned_before() -> CompactedLog:
    """Returns a cleaned log in which two records have been superseded since."""
    log = log_of_everything()
    log.clean()
    log.append_segment((b"c", b"2"), (b"e", b"2"))
    return log


LOGS = (dirty_log, log_cleaned_before)


def first_sidecar(log: CompactedLog) -> str:
    return join(DIRECTORY, next(name for name in log.files() if name.endswith(KEYS)))


@pytest.mark.parametrize("make", LOGS)
@pytest.mark.parametrize(
    ("places", "change"),
    [
        *((places_of_entries, change) for change in LIES_OF_ENTRIES),
        *((places_of_rows, change) for change in LIES_OF_ROWS),
    ],
    ids=lambda each: each.__name__,
)
def test_a_lie_ends_the_pass_and_the_next_one_is_right(
    make: Callable[[], CompactedLog], places: Places, change: Change
) -> None:
    truthful = make()
    truthful.execute(truthful.plan())
    sound = make().fs.read_bytes(first_sidecar(make()))
    noticed = 0

    for block, place in places(sound):
        log = make()
        path = first_sidecar(log)
        before = log.headers()
        log.fs.write_bytes(path, tell(sound, block, place, change))
        if is_refused(log):
            noticed += 1
            assert log.headers() == before, "nothing was swapped in"
            assert not log.fs.exists(path)
            log.execute(log.plan())
        assert log.headers() == truthful.headers()
        assert log.pairs() == truthful.pairs()
        assert log.log.clean_offset == truthful.log.clean_offset

    # The record of the aborted transaction is dropped without comparing its entry.
    assert noticed >= len(places(sound)) - 1 > 1


def is_refused(log: CompactedLog) -> bool:
    """Clean. Returns whether the pass failed because of a sidecar."""
    try:
        log.execute(log.plan())
    except VerificationFailed as failed:
        return "the next pass rebuilds its key sidecar" in str(failed)
    return False
