"""A key sidecar that is sound and lies: the pass that rewrites its segment refuses, the next is right.

Who made it was wrong, so its checksums hold, and records were marked by what it says. Where the segment
is rewritten, every entry and every special row meets its record. Nothing of the group is swapped in, the
sidecar goes, and is made anew.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cleaner.verify_pass import VerificationFailed
from protocol.record_batch import Codec
from storage.paths import KEYS, join
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
    """One segment of all that a batch can be, some of which goes, and some only with time."""
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
    """It is dirty; an earlier pass got as far as its sidecar."""
    log = log_of_everything()
    log.roll()
    for segment in log.log.cleaning_view().segments:
        index(segment, HASH_KEY)
    return log


def log_cleaned_before() -> CompactedLog:
    """It is clean; two of its records are superseded by now."""
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

    # The record of the aborted transaction goes unlooked at, whatever its entry says.
    assert noticed >= len(places(sound)) - 1 > 1


def is_refused(log: CompactedLog) -> bool:
    """Clean; whether that ends because of a sidecar."""
    try:
        log.execute(log.plan())
    except VerificationFailed as failed:
        return "its key sidecar is made anew" in str(failed)
    return False
