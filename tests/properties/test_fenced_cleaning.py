"""Cleaning around damage: once the damaged bytes are readable again, the log says what it ever said.

Histories as in `test_cleaning_histories.py`, in which sealed segments are damaged: flipped bits, lengths
that lie, records that inflate beyond the bound. Nothing may change a damaged segment. After each step
the damage is repaired for the length of a check: then every committed last value must be there, nothing
that was deleted may have come back, nothing undecided may be gone, and readers of committed records must
be sent those alone. At last the damage is repaired for good, and passes must leave what they would have
left without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.verify_pass import VerificationFailed
from protocol.records.control_record import ControlType
from protocol.wire.numbers import Offset
from storage.files.paths import LOG
from tests.harness.compacted_log import CONFIG, CompactedLog, identity
from tests.harness.log_builder import headers_in
from tests.harness.log_transactions import committed_offsets
from tests.harness.memory_fs import Loss
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.verification import lies_in
from tests.properties.cleaning_history import History, NarrowWindows, TinyChunks
from tests.properties.cleaning_steps import (
    APPENDS,
    CLEANS,
    ENDS,
    RETENTION_MS,
    Append,
    Clean,
    CrashInPass,
    EndTransaction,
    Restart,
    Roll,
    Step,
)

SMALL_BOUND = 500
"""Of inflation: some of the batches exceed it."""
FIELDS = {"length": 8, "magic": 16, "checksum": 17, "attributes": 22, "count": 60, "records": 64}
"""Bytes of a batch that its checksum covers, or that are checked themselves."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One byte of a batch in a sealed segment changes."""

    segment: int
    batch: int
    field: str
    bits: int


@dataclass(frozen=True, slots=True)
class Repair:
    """All damage is repaired for good."""


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """The log start moves up by so many offsets."""

    offsets_count: int


@dataclass(frozen=True, slots=True)
class Bound:
    """How far records may inflate."""

    is_small: bool


@dataclass(slots=True)
class Spoiled:
    """A damaged file, with its bytes."""

    path: str
    sound: bytes
    spoiled: bytes


class DamagedLog(CompactedLog):
    """A log whose sidecars are compared with its segments only while these are repaired."""

    def _check_sidecars(self, before: set[str]) -> None:
        """See `FencedHistory.check`."""


@dataclass(slots=True)
class FencedHistory(History):
    """A history in which segments are damaged."""

    spoiled: dict[str, Spoiled] = field(default_factory=dict)
    """By path."""

    def take(self, step: Step | Damage | Repair | DeleteRecords | Bound) -> None:
        match step:
            case Damage():
                self._damage(step)
            case Repair():
                self._show(sound=True)
                self.spoiled.clear()
            case DeleteRecords():
                self._delete(step)
            case Bound(is_small=is_small):
                bound = SMALL_BOUND if is_small else 1 << 28
                self.log.settings = replace(self.log.settings, decompressed_bytes_max=bound)
            case Clean() | CrashInPass():
                # Damage may look like a wrong sidecar, or be met after a swap: the next pass knows it.
                with suppress(CleaningAborted, VerificationFailed):
                    History.take(self, step)
                self.log.fs.on_operation = None
            case _:
                History.take(self, step)

    def _damage(self, step: Damage) -> None:
        sealed = self.log.log.segments[:-1]
        full = [each for each in sealed if each.size and each.path(LOG) not in self.spoiled]
        if not full:
            return
        segment = full[step.segment % len(full)]
        sound = self.log.fs.read_bytes(segment.path(LOG))
        headers = headers_in(sound[: segment.size])
        number = step.batch % len(headers)
        at = sum(header.size_bytes for header in headers[:number]) + FIELDS[step.field]
        if at >= segment.size:
            at = segment.size - 1
        spoiled = sound[:at] + bytes([sound[at] ^ step.bits]) + sound[at + 1 :]
        self.spoiled[segment.path(LOG)] = Spoiled(segment.path(LOG), sound, spoiled)
        self._show(sound=False)

    def _delete(self, step: DeleteRecords) -> None:
        log = self.log.log
        offset = min(log.log_start_offset + step.offsets_count, log.high_watermark)
        log.delete_records(Offset(offset))
        self.start_offset = log.log_start_offset
        self.written = {at: each for at, each in self.written.items() if at >= self.start_offset}

    def _show(self, *, sound: bool) -> None:
        """Let the files that are left have their sound bytes, or the damaged ones."""
        for each in self._left():
            self.log.fs.overwrite(each.path, 0, each.sound if sound else each.spoiled)

    def _left(self) -> list[Spoiled]:
        paths = {segment.path(LOG) for segment in self.log.log.segments}
        return [each for path, each in self.spoiled.items() if path in paths]

    @contextmanager
    def _repaired(self) -> Iterator[None]:
        self._check_damaged_bytes()
        self._show(sound=True)
        try:
            yield
        finally:
            self._show(sound=False)

    def _check_damaged_bytes(self) -> None:
        """A damaged segment goes with the log start, and no other way; until then no byte changes."""
        paths = {segment.path(LOG) for segment in self.log.log.segments}
        for path, each in list(self.spoiled.items()):
            if path in paths:
                assert self.log.fs.read_bytes(path) == each.spoiled, "a damaged segment was changed"
                continue
            base_offset = headers_in(each.sound)[0].base_offset
            assert base_offset < self.start_offset, "a damaged segment was rewritten"
            del self.spoiled[path]

    def check(self) -> None:
        with self._repaired():
            History.check(self)
            self._check_committed()
            assert not (lies := lies_in(self.log.fs, identity())), lies

    def _check_committed(self) -> None:
        """A reader of committed records is sent no aborted one, and all committed ones that are left."""
        log = self.log.log
        there = {record.offset for record in self._read(log.log_start_offset)[0]}
        expected = [
            at
            for at, each in sorted(self.written.items())
            if at in there and each.outcome is ControlType.COMMIT and at < log.last_stable_offset
        ]
        found = [at for at in committed_offsets(log) if at >= log.log_start_offset]
        assert found == expected, "what readers of committed records are sent"

    def end(self) -> None:
        """Repair all damage, let traffic end, and clean: only last values may be left."""
        self.take(Repair())
        self.take(Bound(is_small=False))
        for producer in (10, 11):
            self.take(EndTransaction(producer, ControlType.ABORT))
        self.take(Append([(b"last", b"")]))
        for _ in range(4):
            self.take(Clean(RETENTION_MS))
            self.check()
        newest: dict[bytes | None, int] = {}
        for at, each in sorted(self.written.items()):
            if each.outcome is ControlType.COMMIT:
                newest[each.record.key] = at
        there = {record.offset for record in self._read(self.log.log.log_start_offset)[0]}
        expected = {at for at in newest.values() if self.written[at].record.value is not None}
        older = there - expected if self.log.log.config.history.keeps_more else set()
        assert there == expected | older, "what is left once all damage is repaired"


DAMAGES = st.builds(
    Damage,
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from(sorted(FIELDS)),
    st.integers(1, 255),
)
STEPS = st.one_of(
    APPENDS,
    APPENDS,
    APPENDS,
    ENDS,
    ENDS,
    st.builds(Clean, st.sampled_from([0, RETENTION_MS])),
    st.builds(Clean, st.sampled_from([0, RETENTION_MS])),
    CLEANS,
    st.just(Roll()),
    DAMAGES,
    DAMAGES,
    st.just(Repair()),
    st.builds(Restart, st.booleans()),
    st.builds(CrashInPass, st.integers(1, 40), st.sampled_from(Loss), st.integers(0, 1 << 16)),
    st.builds(DeleteRecords, st.integers(1, 4)),
    st.builds(Bound, st.booleans()),
)


def play(
    steps: Iterable[Step | Damage | Repair | DeleteRecords | Bound],
    segment_bytes: int,
    sidecars: SidecarMode,
    kind: type[CleanerSettings],
    versions: int = 1,
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes, compaction_versions=versions)
    played = FencedHistory(DamagedLog(config, kind(), sidecars=sidecars))
    for step in steps:
        played.take(step)
        played.check()
    played.end()


@settings(max_examples=5000 if "KOMPAKT_SOAK" in os.environ else 150, deadline=None)
@given(
    steps=st.lists(STEPS, min_size=15, max_size=35),
    segment_bytes=st.sampled_from([1, 300, 1 << 30]),
    sidecars=st.sampled_from([SidecarMode.KEPT, SidecarMode.OFF, SidecarMode.MISSING]),
    kind=st.sampled_from([CleanerSettings, TinyChunks, NarrowWindows]),
    versions=st.sampled_from([1, 1, 2]),
)
@example(
    # An older value in the fence, whose tombstone above is long due.
    steps=[
        Append([(b"a", b"1")]), Roll(), Damage(0, 0, "records", 1), Append([(b"a", None)]),
        Append([(b"b", b"1")]), Clean(), Clean(RETENTION_MS), Clean(RETENTION_MS),
    ],
    segment_bytes=1,
    sidecars=SidecarMode.KEPT,
    kind=CleanerSettings,
    versions=1,
)  # fmt: skip
@example(
    # The marker of a transaction lies in the fence, and the next one of its producer is aborted.
    steps=[
        Append([(b"a", b"1")], 10), Roll(), EndTransaction(10, ControlType.COMMIT), Roll(),
        Append([(b"b", b"1")], 10), Append([(b"a", b"2")], 11),
        EndTransaction(10, ControlType.ABORT), EndTransaction(11, ControlType.ABORT), Roll(),
        Damage(1, 0, "records", 1), Clean(), Clean(RETENTION_MS),
    ],
    segment_bytes=1,
    sidecars=SidecarMode.KEPT,
    kind=CleanerSettings,
    versions=1,
)  # fmt: skip
@example(
    # The marker that aborts a transaction lies in the fence, so its data stay dirty.
    steps=[
        Append([(b"a", b"1")], 10), Roll(), EndTransaction(10, ControlType.ABORT), Roll(),
        Append([(b"b", b"1")]), Damage(1, 0, "records", 1), Clean(), Repair(), Clean(),
    ],
    segment_bytes=1,
    sidecars=SidecarMode.KEPT,
    kind=CleanerSettings,
    versions=1,
)  # fmt: skip
def test_any_history_with_damage_keeps_all_that_can_be_read_again(
    steps: list[Step | Damage | Repair | DeleteRecords | Bound],
    segment_bytes: int,
    sidecars: SidecarMode,
    kind: type[CleanerSettings],
    versions: int,
) -> None:
    play(steps, segment_bytes, sidecars, kind, versions)
