"""Crash an erasure at every operation that it does on the disk, in every way, and start again.

After each operation, from the tombstone to the last unlink, the disk is taken as a power cut may leave
it. The recovered log must
    - have no byte of the key below the offsets of what was certified before the crash;
    - if the erasure was accepted: have the tombstone, or nothing of the key below it, and lead to the
      last certificate;
    - have all other keys as they were.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from protocol.records.record_batch import Codec
from server.erasure.state_table import ErasureState
from storage.log.opening import open_log
from tests.harness.compacted_log import (
    CONFIG,
    DIRECTORY,
    CompactedLog,
    identity,
    opening,
    records_of,
)
from tests.harness.erased_log import Erased, ErasedLog, records_on_disk
from tests.harness.examples import not_quick
from tests.harness.memory_fs import Loss, MemoryFileSystem

KEY = b"erased"
OTHERS = [b"other-0", b"other-1"]
IS_SOAK = "KOMPAKT_SOAK" in os.environ
TORN_STATES = 8 if IS_SOAK else 1
SEGMENTS = 3 if IS_SOAK else 2
CODECS = [Codec.LZ4, Codec.NONE] if IS_SOAK else [Codec.LZ4]


def built(codec: Codec) -> CompactedLog:
    """A log with the key in some segments, one of them cleaned, and in the active one."""
    log = CompactedLog()
    for number in range(SEGMENTS):
        for other in OTHERS:
            log.append((other, b"%d" % number), (KEY, b"value %d" % number), codec=codec)
        log.roll()
        if number == 0:
            log.execute(log.plan())
    log.append((KEY, b"the last value"), (OTHERS[0], b"the last value"), codec=codec)
    return log


class Sweep:
    """Takes the disk's crash states while a key is erased, and checks where each leads to."""

    def __init__(self, log: CompactedLog) -> None:
        self.erased_log = ErasedLog(0, log)
        self.log = log
        self.accepted: Erased | None = None
        self.certified_below = 0
        self.states_count = 0
        self.random = Random(0)
        self.seen: set[frozenset[tuple[str, bytes]]] = set()
        self.others = self.values(log)

    @staticmethod
    def values(log: CompactedLog) -> dict[bytes | None, bytes | None]:
        found = {record.key: record.value for record in records_of(log.log)}
        return {key: value for key, value in found.items() if key in OTHERS}

    def run(self) -> None:
        self.log.fs.on_operation = lambda action, path: self.crash_here()
        erased = self.erased_log.request(KEY)
        self.accepted = erased
        self.log.append((b"last", b"value"))
        reader = self.log.log.segments[0].files
        reader.pin()
        for number in range(40):
            if number == 5:
                reader.unpin()
            before = self.erased_log.certified
            bound = erased.bound
            self.erased_log.look(erased)
            if self.erased_log.certified > before:
                self.certified_below = bound
            self.log.now_ms += CONFIG.delete_retention_ms
            self.crash_here()
            if erased.state.is_final:
                break
        self.log.fs.on_operation = None
        assert erased.state is ErasureState.COMPLETE

    def crash_here(self) -> None:
        for loss in (Loss.NOTHING, Loss.EVERYTHING, *[Loss.TORN] * TORN_STATES):
            self.check(self.log.fs.after_crash(loss, self.random))
            self.states_count += 1

    def check(self, fs: MemoryFileSystem) -> None:
        left = {offset for key, offset in records_on_disk(fs) if key == KEY}
        assert not {offset for offset in left if offset < self.certified_below}
        if self.accepted is None or self.is_known(fs):
            return
        again = CompactedLog()
        again.fs, again.now_ms = fs, self.log.now_ms
        again.log = open_log(
            fs, identity(), CONFIG, opening(now_ms=self.log.now_ms, leader_epoch=1)
        )
        again.make_durable()
        offset = self.accepted.offset
        assert again.log.log_end_offset > offset, "the tombstone was durable before the answer"
        left = {record.offset for record in records_of(again.log) if record.key == KEY}
        assert offset in left or not {each for each in left if each < offset}
        continued = ErasedLog(0, again)
        continued.erasures = [Erased(KEY, offset, self.accepted.has_tombstone, self.accepted.state)]
        continued.finish()
        assert self.values(again) == self.others

    def is_known(self, fs: MemoryFileSystem) -> bool:
        """Returns whether these files were recovered before, in the same state of the erasure."""
        assert self.accepted is not None
        files = frozenset(
            (f"{name} {self.accepted.state}", fs.read_bytes(f"{DIRECTORY}/{name}"))
            for name in fs.list(DIRECTORY)
        )
        is_known = files in self.seen
        self.seen.add(files)
        return is_known


@not_quick
@pytest.mark.parametrize("codec", CODECS)
def test_a_crash_at_any_operation_of_an_erasure_leaves_what_was_certified_true(
    codec: Codec,
) -> None:
    sweep = Sweep(built(codec))

    sweep.run()

    assert sweep.states_count > 100
    assert sweep.erased_log.certified == 2
