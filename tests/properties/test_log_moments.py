"""In every history, a log that is linked later has the last values of the moment that was kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from protocol.records.record import Record
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.compaction_strategy import CompactionStrategy
from storage.log import commits
from storage.log.appender import LogAppender
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from storage.state.moment import Moment, MomentLost
from storage.state.producer_state import ProducerStates
from storage.verify.findings import Severity
from storage.verify.log import verify_log
from tests.harness.compacted_log import identity, opening
from tests.harness.every_feature import EveryFeature
from tests.harness.key_lookup import last_of_all, read_last_of_all
from tests.harness.latest_view import values_of

pytestmark = pytest.mark.usefixtures("sweeps_at_once", "directories_without_ids")

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 12
STEPS = 60


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A moment of a log that has begun."""

    log: PartitionLog
    last: Mapping[bytes, Record]
    """The last record of each key."""
    strategy: CompactionStrategy
    rewrites: int
    end_offset: int


class KeptMoments(EveryFeature):
    """A history with every feature, whose log is kept at some moments, and linked some steps later."""

    def __init__(self, seed: int) -> None:
        self.begun: Begun | None = None
        self.links = 0
        self.compared = 0
        self.lost = 0
        self.sizes: dict[str, int] = {}
        """The sizes of the files of linked logs, by path."""
        super().__init__(seed)

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().choices(), (self.begin_moment, 25), (self.link_moment, 10)]

    def begin_moment(self) -> None:
        log = self.log.log
        if self.begun is not None and self.begun.log is log:
            return
        with self.watched.spoiled.repaired(self.log):
            last = read_last_of_all(self.log)
        self.begun = Begun(
            log=log,
            last=last,
            strategy=log.config.strategy,
            rewrites=log.rewrites,
            end_offset=log.log_end_offset,
        )
        moment = Moment()
        log.prepare_moment(moment)
        moment.has_begun = True

    def link_moment(self) -> None:
        log, begun = self.log.log, self.begun
        if begun is None or begun.log is not log:
            return
        self.begun = None
        self.links += 1
        # Not in data/snapshots: that would hold up the erasures of the history.
        directory = f"data/linked/{self.links}/orders/0"
        log.take_moment(self.log.now_ms)
        try:
            linked = log.link_moment(directory)
        except MomentLost:
            assert log.rewrites != begun.rewrites
            self.lost += 1
            return
        finally:
            log.end_moment()
        assert (log.rewrites, linked.end_offset) == (begun.rewrites, begun.end_offset)
        self.log.fs.sync_all(directory)
        self.note_sizes(directory)
        # A pass after a change of strategy has followed the new one.
        if log.config.strategy == begun.strategy and not self.watched.spoiled:
            self.compare(directory, begun)

    def compare(self, directory: str, begun: Begun) -> None:
        its = replace(identity(), directory=directory)
        copy = open_log(self.log.fs, its, self.log.log.config, opening(is_clean=True))
        assert copy.log_end_offset == copy.high_watermark == begun.end_offset
        # Retention may have removed the last record of a key since.
        gone = {key for key, each in begun.last.items() if each.offset < copy.log_start_offset}
        assert _values(last_of_all(copy), gone) == _values(begun.last, gone)
        findings = verify_log(self.log.fs, its, was_clean=True).findings
        assert not [str(each) for each in findings if each.severity is Severity.ERROR]
        self.compared += 1

    def finish(self) -> None:
        self.link_moment()
        super().finish()
        self.truncate()
        # Only the size: the history damages some bytes on purpose.
        for path, size in self.sizes.items():
            assert self.log.fs.size(path) == size, f"{path} was cut"

    def truncate(self) -> None:
        """Open the log again, link it as it is, and cut it somewhere."""
        clean = opening(is_clean=True, leader_epoch=1 << 20)
        log = open_log(self.log.fs, identity(), self.log.log.config, clean)
        log.prepare_moment(Moment(has_begun=True))
        log.take_moment(self.log.now_ms)
        log.link_moment("data/linked/last/orders/0")
        self.note_sizes("data/linked/last/orders/0")
        span = log.log_end_offset - log.log_start_offset
        log.truncate_to(Offset(log.log_start_offset + self.random.randrange(span + 1)))

    def note_sizes(self, directory: str) -> None:
        for name in self.log.fs.list(directory):
            self.sizes[f"{directory}/{name}"] = self.log.fs.size(f"{directory}/{name}")


def _values(last: Mapping[bytes, Record], gone: set[bytes]) -> dict[bytes, bytes]:
    return values_of({key: each for key, each in last.items() if key not in gone})


def play(seed: int) -> KeptMoments:
    history = KeptMoments(seed)
    history.play(STEPS)
    history.finish()
    return history


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_linked_log_has_the_last_values_of_its_moment(seed: int) -> None:
    play(seed)


def test_many_moments_are_compared_and_some_are_lost() -> None:
    histories = [play(seed) for seed in range(8)]

    assert sum(each.compared for each in histories) > 4
    assert sum(each.lost for each in histories) > 2


def _show_all_to_passes(patch: pytest.MonkeyPatch) -> None:
    """Passes see what came after the moment."""
    take = LogAppender.take_moment

    def without_bound(appender: LogAppender, now_ms: int) -> None:
        take(appender, now_ms)
        moment = appender._list.moment
        if moment is not None:
            moment.last_stable_offset = OFFSET_MAX

    patch.setattr(LogAppender, "take_moment", without_bound)


def _take_moments_late(patch: pytest.MonkeyPatch) -> None:
    """The first append after a moment does not take it."""
    write = LogAppender._write

    def late(appender: LogAppender, *args: Any) -> None:
        segments, moment = appender._list, appender._list.moment
        segments.moment = None
        write(appender, *args)
        segments.moment = moment

    patch.setattr(LogAppender, "_write", late)


def _cut_in_place(patch: pytest.MonkeyPatch) -> None:
    """A truncation cuts the file, of which a copy has a second name."""
    patch.setattr(commits, "copy_shared", lambda cut, *_: (cut, None))


def _forget_transactions(patch: pytest.MonkeyPatch) -> None:
    """The copy knows no open transactions, so that their records look committed."""
    patch.setattr(ProducerStates, "copy", lambda _: ProducerStates())


@pytest.mark.parametrize(
    "plant", [_show_all_to_passes, _take_moments_late, _cut_in_place, _forget_transactions]
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        play_all(range(200))
