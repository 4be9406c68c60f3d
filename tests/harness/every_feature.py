"""A random history of one log with everything that may change what its cleaner leaves, and its model.

On top of what `UndoneHistory` plays and checks, keys are erased, records without a key moved, and the
cleanup policy, retention and all settings change. After every step

    a record without a key is in the log, or in the other one, unless the topic drops such records
    what is certified as erased is in no file (`ErasedLog`)
    the last batch of each idempotent producer is known

and in the end what is due is gone, an erasure completes, and files and ledger are sound.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cleaner.inspect.verify_keys import verify_keys
from cleaner.pacing.meter import CleaningAborted
from cleaner.rules.hold import NO_HOLD
from cleaner.rules.pick import Blocker
from protocol.records.record_batch import build_batch
from protocol.wire.numbers import ProducerId
from storage.files.errors import SwapRefused
from storage.formats.log_config import LogConfig
from storage.verify.findings import Severity
from storage.verify.log import verify_log
from tests.harness.compacted_log import identity
from tests.harness.erased_in_history import ErasedInHistory
from tests.harness.erased_log import LOOKS_MAX, records_on_disk
from tests.harness.ledgers import verified
from tests.harness.log_builder import valid
from tests.harness.memory_fs import Loss
from tests.harness.undone_history import UndoneHistory
from tests.harness.verification import KEY_MAP_BYTES
from tests.harness.versioned_history import KEYS

IDEMPOTENT = [3, 4]
COMPACT = ("compact",)
BOTH = ("compact", "delete")


class EveryFeature(UndoneHistory):
    """One history. `play` takes steps and checks the log after each, `finish` ends it."""

    def __init__(self, seed: int, *, map_slots: int = 1000) -> None:
        self.seed = seed
        self.policy: tuple[str, ...] = COMPACT
        self.retention_ms = -1
        self.unkeyed_mode = "move"
        self.unkeyed: dict[int, bytes | None] = {}
        self.may_drop: set[int] = set()
        """Offsets of records without a key that a pass could drop."""
        self.last_batches: dict[int, tuple[bytes, int]] = {}
        """Of each idempotent producer, with the base offset."""
        super().__init__(seed, map_slots=map_slots)
        self.eraser = ErasedInHistory(self.log, self.note_tombstone)

    def config(self) -> LogConfig:
        config = replace(
            super().config(),
            cleanup_policy=self.policy,
            retention_ms=self.retention_ms,
            compaction_unkeyed_records=self.unkeyed_mode,
            compaction_unkeyed_topic="aside",
            compaction_compare_keys=self.seed % 2 == 0,
        )
        config.check_compaction()
        return config

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [
            *super().choices(),
            (self.append_unkeyed, 8), (self.append_idempotent, 10), (self.send_again, 4),
            (self.change_unkeyed, 2), (self.change_policy, 3), (self.retain, 4),
            (self.play_uncompacted, 2), (self.erase, 4), (self.look_at_erasures, 14),
        ]  # fmt: skip

    def play(self, steps: int, without: frozenset[int] = frozenset()) -> None:
        """Take steps. The choices of a step do not depend on other steps, so that the shortest history
        that fails can be found by leaving out those `without`."""
        actions, weights = zip(*self.choices(), strict=True)
        for number in range(steps):
            if number not in without:
                self.random.seed(f"{self.seed} {number}")
                (step,) = self.random.choices(actions, weights)
                step()
                self.check()

    # ---------------------------------------------------------------- producers

    def append_unkeyed(self) -> None:
        """Append records without a key, and one that has one."""
        base = self.log.log.log_end_offset
        values = [self.random.choice([None, b"1", b"22" * 40]) for _ in range(3)]
        self.append_timeless(*((None, value) for value in values), (b"beside", b"value"))
        self.unkeyed |= {base + at: value for at, value in enumerate(values)}

    def append_idempotent(self) -> None:
        producer = self.random.choice(IDEMPOTENT)
        state = self.log.log.producers.get(ProducerId(producer))
        records, sent = self._records()
        batch = build_batch(
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=state.batches[-1].last_sequence + 1 if state and state.batches else 0,
        )
        self.last_batches[producer] = bytes(batch), self.log.log.log_end_offset
        self.log.append_batch(valid(batch))
        for key, each in sent:
            self.sent[key].append(each)

    def send_again(self) -> None:
        """A producer's last batch is known, however long ago it was, and even where it was cleaned."""
        for batch, base_offset in self.last_batches.values():
            appended = self.log.append_batch(valid(bytearray(batch)))
            assert (appended.base_offset, appended.duplicate) == (base_offset, True)

    def end_transaction(self) -> None:
        start = self.log.log.log_start_offset
        for producer, records in self.open.items():
            # Retention does not wait for the end of transactions.
            self.open[producer] = [each for each in records if each[1].offset >= start]
        super().end_transaction()

    # ---------------------------------------------------------------- settings and retention

    def change_unkeyed(self) -> None:
        self.unkeyed_mode = self.random.choice(["move", "move", "keep", "drop"])
        self.log.log.update_config(self.config())

    def change_policy(self) -> None:
        self.policy = self.random.choice([COMPACT, COMPACT, BOTH])
        self.retention_ms = self.random.choice([-1, 20_000, 60_000])
        self.log.log.update_config(self.config())

    def play_uncompacted(self) -> None:
        """Let the policy be delete for a while. No pass is planned, and none from before may swap."""
        policy, plan, log = self.policy, self.log.plan(), self.log.log
        self.policy = ("delete",)
        self.log.log.update_config(self.config())
        steps = [
            self.append, self.append_in_transaction, self.end_transaction, self.roll, self.restart,
            self.append_unkeyed, self.retain, self.delete_records, self.undo, self.wait,
        ]  # fmt: skip
        for _ in range(4):
            self.random.choice(steps)()
            self.check()
            assert self.log.assess(requested=True).blocker is Blocker.NOT_COMPACTED
        before = self.present()
        with suppress(CleaningAborted, SwapRefused):
            if self.log.log is log:
                self.watched.execute_once(plan)
        assert self.present() == before, "a pass that was planned before has run"
        self.policy = policy
        self.log.log.update_config(self.config())

    def retain(self) -> None:
        """Let retention run. The start may move only where the policy says so."""
        log, now_ms = self.log.log, self.log.now_ms
        start, segments = log.log_start_offset, log.segments
        if log.retention_is_due(now_ms):
            log.retain(now_ms)
        if log.log_start_offset > start:
            assert log.config.is_deleted
            gone = [each for each in segments if start < each.end_offset <= log.log_start_offset]
            youngest_ms = [min(each.max_timestamp, each.last_append_ms) for each in gone]
            assert all(each < now_ms - self.retention_ms for each in youngest_ms)
        self._forget_what_is_gone()

    # ---------------------------------------------------------------- erasures

    def erase(self) -> None:
        with self.ends_at_damage():
            key = self.random.choice(KEYS)
            erased = self.eraser.request(key)
            value = self.last_value(key) if erased.has_tombstone else None
            assert value is None, f"{erased} does not outrank {value}"

    def look_at_erasures(self) -> None:
        self.eraser.random = self.random
        with self.ends_at_damage():
            self.eraser.look_at_one()

    def crash_in_a_sweep(self) -> None:
        super().crash_in_a_sweep()
        self.eraser.forget_proofs()

    def crash_in_a_pass(self) -> None:
        super().crash_in_a_pass()
        self.eraser.forget_proofs()

    def restart(self) -> None:
        super().restart()
        self.eraser.forget_proofs()

    def undo(self) -> None:
        super().undo()
        self.eraser.forget_proofs()

    # ---------------------------------------------------------------- checking

    def pass_begins(self) -> None:
        super().pass_begins()
        if self.log.log.config.compaction_unkeyed_records == "drop":
            self.may_drop |= self.unkeyed.keys()

    def check_records(self) -> None:
        super().check_records()
        self._check_unkeyed()

    def _check_unkeyed(self) -> None:
        start = self.log.log.log_start_offset
        moved = {*self.watched.aside.origins()}
        for offset, value in self.unkeyed.items():
            is_there = offset in self.there or (offset, value) in moved
            assert is_there or offset < start or offset in self.may_drop, f"{offset} is nowhere"
        assert {offset for offset, _ in moved} <= self.unkeyed.keys()

    # ---------------------------------------------------------------- the end

    def finish(self) -> None:
        """End all that holds something up. Then what is due goes, an erasure completes, and the files
        and the ledger are sound."""
        self.random.seed(f"{self.seed} the end")
        self.repair()
        self.policy, self.log.hold = COMPACT, NO_HOLD
        self.log.log.update_config(self.config())
        while self.open:
            self.end_transaction()
        for _ in range(3):
            self.append_timeless((b"last", b"value"))
            self.clean()
            self.check()
            self.log.now_ms += 30_000
        self.clean_all_that_is_due()
        self.retain()
        self.check()
        log = self.log.log
        if log.log_start_offset == log.segments[0].base_offset:
            # Else records below the start may be in the first segment, which go with it only.
            self.erase_fully(self.random.choice(KEYS))
        self.log.reopen(is_clean=True, loss=Loss.NOTHING)
        self.check()
        self.log.log.close()
        findings = [
            *verify_log(self.log.fs, identity(), was_clean=True).findings,
            *verify_keys(self.log.fs, identity(), map_bytes=KEY_MAP_BYTES),
        ]
        assert not [str(each) for each in findings if each.severity is Severity.ERROR]
        ledger = verified(self.log.fs)
        assert ledger.is_sound, ledger.findings

    def erase_fully(self, key: bytes) -> None:
        erased = self.eraser.request(key)
        self.append_timeless((b"last", b"value"))
        for _ in range(LOOKS_MAX):
            self.log.now_ms += self.log.log.config.delete_retention_ms
            if not erased.state.is_final:
                self.eraser.look(erased)
                self.check()
        assert erased.state.is_final, erased
        left = [at for its, at in records_on_disk(self.log.fs) if its == key and at < erased.offset]
        assert not left, f"{left} of an erased key are left"
