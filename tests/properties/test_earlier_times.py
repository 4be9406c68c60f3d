"""In every history, a log that is cut back has the last values of an earlier time, or cannot be cut."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from protocol.records.batch_header import BatchHeader
from protocol.records.control_record import ControlType
from protocol.records.record import Record
from protocol.records.record_batch import read_marker
from protocol.wire.numbers import Offset
from storage.files.errors import CutRefused
from storage.files.paths import LOG
from storage.formats.compaction_strategy import CompactionStrategy
from storage.log.appender import LogAppender
from storage.log.commits import LogCommits
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from storage.snapshots import cut_at_time
from storage.state.moment import Moment, MomentLost
from storage.verify.findings import Severity
from storage.verify.log import verify_log
from tests.harness.compacted_log import identity, opening, read_bytes, records_of
from tests.harness.every_feature import EveryFeature
from tests.harness.key_lookup import last_of, last_of_all
from tests.harness.latest_view import values_of
from tests.harness.log_builder import headers_in, records_in
from tests.harness.log_transactions import committed_offsets

pytestmark = pytest.mark.usefixtures("sweeps_at_once", "directories_without_ids")

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 12
STEPS = 60


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A log at an earlier time."""

    log: PartitionLog
    last: Mapping[bytes, Record]
    """The last record of each key, without transactions that are open."""
    strategy: CompactionStrategy
    rewrites: int
    end_offset: Offset


class EarlierTimes(EveryFeature):
    """A history with every feature, of which copies are cut back to what it was some steps before."""

    def __init__(self, seed: int) -> None:
        self.earlier: list[Earlier] = []
        self.copies = 0
        self.compared = 0
        self.refused = 0
        super().__init__(seed)

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().choices(), (self.note, 40), (self.cut_back, 40), (self.clean, 20)]

    def note(self) -> None:
        log = self.log.log
        with self.watched.spoiled.repaired(self.log):
            last = last_decided(log)
        noted = Earlier(
            log=log,
            last=last,
            strategy=log.config.strategy,
            rewrites=log.rewrites,
            end_offset=log.log_end_offset,
        )
        self.earlier.append(noted)

    def cut_back(self) -> None:
        log = self.log.log
        self.earlier = [
            each for each in self.earlier if (each.log, each.rewrites) == (log, log.rewrites)
        ]
        if not self.earlier or self.watched.spoiled:
            return
        earlier = self.random.choice(self.earlier)
        self.copies += 1
        directory = f"data/linked/{self.copies}/orders/0"
        log.prepare_moment(Moment(has_begun=True))
        log.take_moment(self.log.now_ms)
        with suppress(MomentLost):
            log.link_moment(directory)
            self.log.fs.sync_all(directory)
            self.compare(directory, earlier)
        log.end_moment()

    def compare(self, directory: str, earlier: Earlier) -> None:
        its = replace(identity(), directory=directory)
        copy = open_log(self.log.fs, its, self.log.log.config, opening(is_clean=True))
        if earlier.end_offset < copy.log_start_offset:
            return  # Retention has removed all of it.
        was = self.log.log.cut_offset_min
        try:
            cut_at_time.cut_back(copy, earlier.end_offset, self.log.now_ms)
        except CutRefused:
            assert earlier.end_offset < was
            self.refused += 1
            return
        copy.close()
        copy = open_log(self.log.fs, its, self.log.log.config, opening(is_clean=True))
        assert copy.log_end_offset == copy.last_stable_offset
        # A pass after a change of strategy has followed the new one.
        if self.log.log.config.strategy == earlier.strategy:
            # Retention may have removed the last record of a key since.
            gone = {
                key for key, each in earlier.last.items() if each.offset < copy.log_start_offset
            }
            assert _values(last_of_all(copy), gone) == _values(earlier.last, gone)
            self.compared += 1
        findings = verify_log(self.log.fs, its, was_clean=True).findings
        assert not [str(each) for each in findings if each.severity is Severity.ERROR]


def last_decided(log: PartitionLog) -> dict[bytes, Record]:
    """Returns the last record of each key, with transactions that have ended behind an open one."""
    committed = set(committed_offsets(log))
    decided = [each for each in records_of(log) if each.offset in committed]
    undecided: defaultdict[int, list[Record]] = defaultdict(list)
    for header, batch in batches_from(log, log.last_stable_offset):
        if header.is_control:
            marker, ended = read_marker(batch), undecided.pop(header.producer_id, [])
            decided += ended if marker and marker.type is ControlType.COMMIT else []
        elif header.base_offset >= log.last_stable_offset:
            its = undecided[header.producer_id] if header.is_transactional else decided
            its += records_in(batch)
    return last_of(decided, log)


def batches_from(log: PartitionLog, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
    while data := read_bytes(log, offset):
        position = 0
        for header in headers_in(data):
            yield header, data[position : position + header.size_bytes]
            position += header.size_bytes
            offset = header.next_offset


def _values(last: Mapping[bytes, Record], gone: set[bytes]) -> dict[bytes, bytes]:
    return values_of({key: each for key, each in last.items() if key not in gone})


def play(seed: int) -> EarlierTimes:
    history = EarlierTimes(seed)
    history.play(STEPS)
    history.finish()
    return history


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_copy_that_is_cut_back_has_the_last_values_of_then(seed: int) -> None:
    play(seed)


def test_many_copies_are_compared_and_some_are_refused() -> None:
    histories = [play(seed) for seed in range(16)]

    assert sum(each.compared for each in histories) > 20
    assert sum(each.refused for each in histories) > 5


def _cut_below_what_passes_have_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogCommits, "cut_offset_min", Offset(0))


def _commit_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """A transaction that was open is committed."""
    append = LogAppender.append_marker

    def commit(appender: LogAppender, *args: Any, is_commit: bool, **named: Any) -> Any:
        is_copy = "linked" in appender._list.active.path(LOG)
        return append(appender, *args, is_commit=is_commit or is_copy, **named)

    patch.setattr(LogAppender, "append_marker", commit)


@pytest.mark.parametrize("plant", [_cut_below_what_passes_have_used, _commit_open_transactions])
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        play_all(range(200))
