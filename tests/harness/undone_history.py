"""A random history of a log whose passes are undone and whose segments are damaged, and its model.

On top of what `SparedHistory` (strategies, older values, spared segments) and `ExpiringHistory` (sweeps)
play and check, each pass is judged by what was there when it began. After every step:

    a record is at its offset, and has not changed; it went by a pass, or below the log start
    a pass has dropped nothing that the settings keep, no tombstone before its horizon or under a hold,
    and nothing of a damaged segment, which may be read again
    an undo leads to the records, the clean offset and the horizons from before its pass
    readers of committed records are sent these alone, and all of them
    the log's directory has no other files than those of the manifest and those kept for undos
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.hold import Hold
from cleaner.rules.latest import version_of
from protocol.records.batch_header import BatchHeader
from protocol.records.record_batch import Record, build_batch
from protocol.wire.errors import ProtocolError
from storage.files.paths import parse_segment_file
from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from storage.undo.undo_file import EndReason
from tests.harness.compacted_log import CompactedLog, identity
from tests.harness.expiring_history import BY_HEADER, ExpiringHistory
from tests.harness.log_builder import KeyValue, batch_of, valid
from tests.harness.log_transactions import committed_offsets
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.spared_history import SparedHistory
from tests.harness.spoiled_segments import kept_names
from tests.harness.verification import lies_in
from tests.harness.versioned_history import KEYS, Sent
from tests.harness.watched_passes import WatchedLog

UNREADABLE = (ProtocolError, CleaningAborted, VerificationFailed)
"""With these a search, a proof or a sweep may end at a damaged segment."""


@dataclass(frozen=True, slots=True)
class Before:
    """The log, and what the model knew of it, before a pass."""

    records: list[Record]
    headers: list[BatchHeader]
    end_offset: int
    clean_offset: int
    sent: dict[bytes, list[Sent]]
    counted: int
    """How many records had counted by then."""
    horizons: dict[int, int]
    kept: set[int]
    """The numbers of the passes that could be undone."""


class UndoneHistory(SparedHistory, ExpiringHistory):
    """One history. `play` takes steps and checks the log after each."""

    watched: WatchedLog
    """The same as `log`."""
    tombstone_share = 0.15

    def __init__(self, seed: int, *, map_slots: int = 1000) -> None:
        self.undo_ms, self.undo_bytes = 30_000, 1 << 30
        self.before: dict[int, Before] = {}
        """By the numbers of the passes that can be undone."""
        self.counted: list[tuple[bytes, Sent]] = []
        """Records in the order in which they began to count."""
        self._known: set[int] = set()
        self._begun: list[Before] = []
        """What was before each pass since the last crash in one."""
        self.there: dict[int, Record] = {}
        """The records at the last look, by offset."""
        self.written: dict[int, Record] = {}
        """Each record as it was first seen, by offset."""
        self.has_run = False
        """Whether a pass has run, or was undone, since the last look."""
        self.damages = 0
        self._is_damaged = False
        super().__init__(seed, map_slots=map_slots)

    def new_log(self, settings: CleanerSettings) -> CompactedLog:
        mode = self.random.choice([SidecarMode.KEPT, SidecarMode.KEPT, SidecarMode.MISSING])
        self.watched = WatchedLog(self.config(), settings, self, sidecars=mode)
        return self.watched

    def config(self) -> LogConfig:
        return replace(
            super().config(),
            compaction_undo_ms=self.undo_ms,
            compaction_undo_bytes=self.undo_bytes,
        )

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [
            *super().choices(),
            (self.undo, 14), (self.change_undo, 4), (self.end_kept_passes, 4),
            (self.damage, 6), (self.repair, 8), (self.delete_what_is_held, 5),
        ]  # fmt: skip

    # ---------------------------------------------------------------- undo

    def change_undo(self) -> None:
        self.undo_ms = self.random.choice([0, 2_000, 30_000, 30_000])
        self.undo_bytes = self.random.choice([2_000, 1 << 30, 1 << 30])
        self.log.log.update_config(self.config())

    def crash_in_a_pass(self) -> None:
        self._begun.clear()
        super().crash_in_a_pass()
        unknown = {each.number for each in self.log.log.passes_kept} - self.before.keys()
        if unknown and len(self._begun) > 1:
            # Damage has let the cleaner begin again, and nobody knows which of the passes it is.
            self.log.log.drop_passes_kept(EndReason.DISK)
        elif unknown:
            # It was kept at the crash, and would have ended with a later swap.
            (self.before[min(unknown)],) = self._begun

    def end_kept_passes(self) -> None:
        log = self.log.log
        if log.kept_is_due(self.log.now_ms):
            log.expire_kept(self.log.now_ms)

    def undo(self) -> None:
        """Undo the newest pass; an older one cannot be."""
        kept = self.log.log.passes_kept
        if not kept:
            return
        for each in kept[:-1]:
            assert self.log.log.undo_refusal(each.number)
        number = kept[-1].number
        before = self.before.pop(number)
        with self.watched.spoiled.repaired(self.log):
            now = self.log.records()
        outputs = {(row.base_offset, row.file_version) for row in kept[-1].outputs}
        undone = self.watched.undo(number)
        listed = {(each.base_offset, each.file_version) for each in self.log.log.segments}
        self.watched.spoiled.forget(self.log, outputs - listed - kept_names(self.log))
        self._restore_model(before)
        with self.watched.spoiled.repaired(self.log):
            self._check_undone(before, now)
        assert undone.clean_offset == self.log.log.clean_offset

    def _restore_model(self, before: Before) -> None:
        start = self.log.log.log_start_offset
        self.sent.clear()
        for key, sent in before.sent.items():
            if left := [each for each in sent if each.offset >= start]:
                self.sent[key] = left
        self._note_counted()
        for key, each in self.counted[before.counted :]:
            if each.offset >= start:
                self.sent[key].append(each)
        self.horizons = dict(before.horizons)
        self.has_run = True
        # The strategy may be another one now; what is gone can no longer win.
        self._forget_what_is_gone()

    def _check_undone(self, before: Before, now: list[Record]) -> None:
        log = self.log.log
        start = log.log_start_offset
        expected = [each for each in before.records if each.offset >= start]
        expected += [each for each in now if each.offset >= before.end_offset]
        assert self.log.records() == expected, "records after an undo"
        assert log.clean_offset == max(before.clean_offset, start)
        headers = [each for each in self.log.headers() if each.last_offset < before.end_offset]
        first = headers[0].base_offset if headers else 0
        assert headers == [each for each in before.headers if each.base_offset >= first]

    # ---------------------------------------------------------------- damage

    def damage(self) -> None:
        self.damages += 1
        self.watched.spoiled.damage_one(self.log, self.random)

    def repair(self) -> None:
        """Repair all damage. After it nothing is dirty, so a pass is requested."""
        if self.watched.spoiled:
            self.watched.spoiled.repair(self.log)
            self.clean()

    def delete_what_is_held(self) -> None:
        """Delete keys above a damaged segment, or above what a group has read, and let the tombstones'
        time pass."""
        if self.random.random() < 0.5:
            self.damage()
        else:
            self.log.hold = Hold(offset=self.log.log.log_end_offset, by="group g")
        for key in self.random.sample(KEYS, 2):
            base = self.log.log.log_end_offset
            record = Record(offset=0, timestamp=self.log.now_ms, key=key, value=None)
            self.log.append_batch(valid(build_batch([record])))
            self.note_tombstone(base, record)
        for _ in range(3):
            self.append_timeless((b"beside", b"value"))
            self.clean()
            self.log.now_ms += 1200

    def append_timeless(self, *pairs: KeyValue) -> None:
        """Append records that never expire, with keys that the model does not know."""
        self.log.append_batch(valid(batch_of(pairs, timestamps=[-1] * len(pairs))))

    def note_tombstone(self, offset: int, record: Record) -> None:
        assert record.key is not None
        version = version_of(BY_HEADER, timestamp=record.timestamp, headers=record.headers)
        self.headers[offset] = record.headers
        self.sent[record.key].append(Sent(offset, record.timestamp, version, True, self.log.now_ms))

    def ends_at_damage(self) -> AbstractContextManager[None]:
        """Within the body a reading may end at a damaged segment, if there is one."""
        return suppress(*UNREADABLE) if self.watched.spoiled else nullcontext()

    def digest(self) -> int | None:
        """Returns the digest, which nobody can compute of a log with damage."""
        return None if self._is_damaged else super().digest()

    def clean(self) -> None:
        # What is damaged may be kept for an undo only, and go with the pass.
        self._is_damaged = bool(self.watched.spoiled)
        super().clean()

    def clean_all_that_is_due(self) -> None:
        if self.watched.spoiled:
            self.log.roll()
            self.clean_as_picked()
        else:
            super().clean_all_that_is_due()

    def sweep(self) -> None:
        if self.watched.spoiled:
            self.sweep_beside_producers()
        else:
            super().sweep()

    def run_sweep(self, between: Callable[[], None]) -> None:
        with self.ends_at_damage():
            super().run_sweep(between)

    # ---------------------------------------------------------------- passes, judged

    def pass_begins(self) -> None:
        log = self.log.log
        with self.watched.spoiled.repaired(self.log):
            self._note_counted()
            self._must_stay = self.kept()
            self._at_begin = Before(
                records=self.log.records(),
                headers=self.log.headers(),
                end_offset=log.log_end_offset,
                clean_offset=log.clean_offset,
                sent={key: [*sent] for key, sent in self.sent.items()},
                counted=len(self.counted),
                horizons=dict(self.horizons),
                kept={each.number for each in log.passes_kept},
            )
            self._begun.append(self._at_begin)

    def pass_ends(self) -> None:
        self.has_run = True
        for each in self.log.log.passes_kept:
            if each.number not in self._at_begin.kept:
                self.before[each.number] = self._at_begin
                assert self.log.log.kept_bytes <= self.undo_bytes
        with self.watched.spoiled.repaired(self.log):
            self.check_kept(self._must_stay)
            self._check_tombstones()
            self._note_horizons()
            self._check_new_horizons()

    def _check_tombstones(self) -> None:
        """Tombstones stay until their horizons, and under a hold; new horizons are late enough."""
        before, now_ms = self._at_begin, self.log.now_ms
        there = {each.offset for each in before.records}
        left = {each.offset for each in self.log.records()}
        config = self.log.log.config
        for sent in before.sent.values():
            ranks = [each.rank(config.strategy.ranking) for each in sent]
            for each in sent:
                if each.offset in left or each.offset not in there or not each.is_tombstone:
                    continue
                if each.rank(config.strategy.ranking) == max(ranks):
                    assert before.horizons.get(each.offset, LONG_MAX) <= now_ms, f"{each} is gone"
                    assert each.offset < self.log.hold.offset, f"{each} was held"

    def _check_new_horizons(self) -> None:
        known, sent = self._at_begin.horizons, self._at_begin.sent
        least_ms = self.log.now_ms + self.log.log.config.delete_retention_ms
        for each in (each for records in sent.values() for each in records if each.is_tombstone):
            horizon_ms = self.horizons.get(each.offset, LONG_MAX)
            assert horizon_ms >= known.get(each.offset, least_ms), f"the horizon of {each}"

    # ---------------------------------------------------------------- checking

    def present(self) -> dict[bytes, list[Sent]]:
        with self.watched.spoiled.repaired(self.log):
            return super().present()

    def _forget_what_is_gone(self) -> None:
        self._note_counted()
        with self.watched.spoiled.repaired(self.log):
            super()._forget_what_is_gone()

    def _note_counted(self) -> None:
        for key, sent in self.sent.items():
            for each in sent:
                if each.offset not in self._known:
                    self._known.add(each.offset)
                    self.counted.append((key, each))

    def check(self) -> None:
        self._note_counted()
        with self.watched.spoiled.repaired(self.log):
            super().check()
            self.check_records()
            self._check_committed()
            assert not (lies := lies_in(self.log.fs, identity())), lies
        self._check_kept_passes()
        self._check_files()

    def _check_deletions(self, key: bytes, left: list[Sent], sent: list[Sent]) -> None:
        gone = [each.offset for each in sent if each.is_tombstone and each not in left]
        is_covered = any(each.offset > max(gone, default=-1) for each in left)
        if not (self.damages and is_covered):
            # A damaged segment keeps what is before a tombstone that a later record has superseded.
            super()._check_deletions(key, left, sent)

    def check_records(self) -> None:
        log = self.log.log
        records, start = self.log.records(), log.log_start_offset
        offsets = [each.offset for each in records]
        assert offsets == sorted(set(offsets))
        there = {each.offset: each for each in records}
        for offset in [each for each in self.written if each >= log.log_end_offset]:
            # A crash has taken tombstones of a sweep that were not durable.
            del self.written[offset]
        for offset, record in there.items():
            assert self.written.setdefault(offset, record) == record, "a record has changed"
        gone = [at for at in self.there if at not in there and start <= at < log.log_end_offset]
        assert self.has_run or not gone, f"{gone} went without a pass"
        undecided = {each.offset for sent in self.open.values() for _, each in sent}
        assert {at for at in undecided if at >= start} <= there.keys()
        self.there, self.has_run = there, False

    def _check_committed(self) -> None:
        """A reader of committed records is sent no aborted one, and all committed ones that are left."""
        log = self.log.log
        markers = {
            offset
            for header in self.log.headers()
            if header.is_control
            for offset in range(header.base_offset, header.last_offset + 1)
        }
        expected = [
            offset
            for offset in self.there
            if offset not in self.uncounted
            and offset not in markers
            and offset < log.last_stable_offset
        ]
        found = committed_offsets(log, max_bytes=2000)
        assert [each for each in found if each >= log.log_start_offset] == expected

    def _check_kept_passes(self) -> None:
        kept = {each.number for each in self.log.log.passes_kept}
        assert kept <= self.before.keys()
        for number in self.before.keys() - kept:
            assert self.log.log.undo_refusal(number)
            del self.before[number]

    def _check_files(self) -> None:
        files = [parse_segment_file(name) for name in self.log.files()]
        names = {(each.base_offset, each.version) for each in files if each is not None}
        listed = {(each.base_offset, each.file_version) for each in self.log.log.segments}
        assert names == listed | kept_names(self.log)
