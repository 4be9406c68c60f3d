"""Crash a pass that moves records without a key at every operation that it does on the disk.

Both logs are on one disk. In each state that a power cut may leave, after each operation, every record
without a key is in the log, or in the other one, or in both; and one more pass leaves it in the other
one only.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from cleaner.passes import unkeyed as unkeyed_module
from protocol.records.record_batch import Codec
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.unkeyed_log import MovingLog, Origin

TORN_STATES = 20 if "KOMPAKT_SOAK" in os.environ else 1


def built(random: Random, codec: Codec) -> MovingLog:
    """A log of many small segments, of which half of the records has no key."""
    log = MovingLog()
    for number in range(9):
        keys = [random.choice([None, None, b"a", b"b"]) for _ in range(random.randint(1, 3))]
        log.append(*[(key, b"%d" % number * random.randint(1, 30)) for key in keys], codec=codec)
        if number % 3 == 2:
            log.roll()
    log.append((b"last", b"1"))
    log.roll()
    return log


class Sweep:
    """Takes the crash states of both logs while a pass runs."""

    def __init__(self, log: MovingLog) -> None:
        self.log = log
        self.all = set(log.unkeyed())
        self.random = Random(0)
        self.states = self.doubles = 0
        self.continued: set[frozenset[tuple[str, bytes]]] = set()

    def run(self) -> None:
        self.log.fs.on_operation = lambda action, path: self.crash_here()
        self.log.run_pass(self.log.plan())
        self.log.fs.on_operation = None

    def crash_here(self) -> None:
        for loss in (Loss.NOTHING, Loss.EVERYTHING, *[Loss.TORN] * TORN_STATES):
            self.check(self.log.fs.after_crash(loss, self.random))
            self.states += 1

    def check(self, fs: MemoryFileSystem) -> None:
        again = self.log.restarted(fs)
        here, there = again.unkeyed(), again.aside.origins()
        assert {*here, *there} == self.all, "a record is in neither place"
        self.doubles += len(set(here) & set(there)) > 0
        files = frozenset(
            (path, fs.read_bytes(f"data/{folder}/0/{path}"))
            for folder in ("orders", "aside")
            for path in fs.list(f"data/{folder}/0")
        )
        if files not in self.continued:
            self.continued.add(files)
            again.run_pass()
            assert again.unkeyed() == []
            assert set(again.aside.origins()) == self.all


@pytest.mark.parametrize(("chunk_records", "codec"), [(1, Codec.LZ4), (500, Codec.NONE)])
def test_a_crash_at_any_operation_leaves_no_record_in_neither_place(
    codec: Codec, chunk_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unkeyed_module, "CHUNK_RECORDS", chunk_records)
    log = built(Random(1), codec)
    wanted: list[Origin] = sorted(log.unkeyed(), key=lambda origin: origin[0])
    sweep = Sweep(log)

    sweep.run()

    assert len(wanted) > 5
    assert sweep.states > 30 * (2 + TORN_STATES)
    assert sweep.doubles, "at least once over a crash: some states have records in both places"
    assert log.unkeyed() == []
    assert log.aside.origins() == wanted, "once each, in order, without a crash"
