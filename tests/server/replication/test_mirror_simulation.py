"""A source and a mirror in a simulation: after any events the mirror ends with the source's state.

KOMPAKT_MIRROR_SEEDS sets how many seeds there are, KOMPAKT_MIRROR_SEED the first one.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest

from protocol.wire.numbers import Epoch, Offset
from server.replication import copying, findings
from server.replication.copying import SourceCopier
from server.replication.divergence import Place
from server.replication.findings import SourceAnswer, Verdict
from server.replication.gap_epoch import AskEpochEnd
from server.replication.mirror import Mirror
from server.replication.requests import Fetched
from server.replication.state_table import FINAL, Action, Guard, MirrorState
from server.replication.target import Target
from server.replication.tombstones import TombstoneWatch
from server.replication.writer import MirrorWriter
from storage.files.errors import LogOffline
from storage.log.commits import LogCommits
from storage.log.log import PartitionLog
from tests.harness.mirror_world import MirrorWorld, StartCounter
from tests.harness.rejoining_world import RejoiningWorld

World = TypeVar("World", bound=MirrorWorld)

SEEDS = int(os.environ.get("KOMPAKT_MIRROR_SEEDS", "80"))
FIRST = int(os.environ.get("KOMPAKT_MIRROR_SEED", "0"))
STEPS = 150
PARTS = 4


def simulated(seed: int, *, resyncs: bool = False, trims: bool = False) -> MirrorWorld:
    """Simulate one seed to its end, and compare both sides. A failure names the seed, which repeats
    it."""
    return played(MirrorWorld(seed, resyncs=resyncs, trims=trims), seed, resyncs=resyncs)


def rejoined(seed: int, *, trims: bool) -> RejoiningWorld:
    """Simulate a rejoin to its end."""
    return played(RejoiningWorld(seed, trims=trims), seed)


def played(world: World, seed: int, *, resyncs: bool = False) -> World:
    """Let a world live to its end. Returns it."""

    async def run() -> None:
        await world.run(STEPS)
        await world.settle()

    try:
        asyncio.run(run())
        if isinstance(world, RejoiningWorld):
            assert not world.lost(), "the last copy of a record is gone"
        if world.mirror.state is MirrorState.FAILED:
            assert not resyncs, "a resync makes it whole"
            if isinstance(world, RejoiningWorld):
                has_failed = world.mirror.resyncs_started > world.mirror.resyncs_completed
                assert has_failed, "no operator is needed unless a resync has failed"
            assert world.stops & set(FINAL), "an operator decides only what may lose records"
        else:
            assert not world.diverges(), "a record is not the source's"
            assert world.last_values(world.copy) == world.last_values(world.source)
            theirs, ours = world.source.log, world.copy.log
            assert ours.last_stable_offset == theirs.last_stable_offset
            assert not world.is_internal or world.trims or not world.forgets_a_producer()
            assert not world.is_internal or not world.refuses_a_producer()
    except BaseException as error:
        error.add_note(f"seed {seed}: {world.mirror.facts()}")
        raise
    return world


@pytest.mark.parametrize("part", range(PARTS))
def test_a_mirror_ends_with_the_sources_state_or_waits_for_an_operator(part: int) -> None:
    worlds = [simulated(seed) for seed in range(FIRST + part, FIRST + SEEDS, PARTS)]

    ends = Counter(world.mirror.state for world in worlds if not world.lags)
    stops = Counter(guard for world in worlds for guard in world.stops)
    if len(worlds) > 10:
        assert ends[MirrorState.COPYING] > ends.total() // 2, (ends, stops)
        assert stops[Guard.MISSED_TOMBSTONES] > 0, stops


@pytest.mark.parametrize("part", range(PARTS))
def test_with_resyncs_a_mirror_always_ends_with_the_sources_state(part: int) -> None:
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    worlds = [simulated(seed, resyncs=True) for seed in seeds]

    completed = sum(world.resyncs_completed for world in worlds)
    if len(worlds) > 10:
        assert completed > len(worlds) // 4
        assert any(world.resyncs_started > world.resyncs_completed for world in worlds)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_mirror_of_a_topic_whose_records_are_deleted_ends_with_the_sources_state(
    part: int,
) -> None:
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    worlds = [simulated(seed, trims=True) for seed in seeds]

    if len(worlds) > 10:
        assert any(world.mirror.skipped_records for world in worlds)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_mirror_waits_while_its_disk_is_full(part: int) -> None:
    worlds = []
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        world = MirrorWorld(seed, trims=True, fills=True)
        try:
            played(world, seed)
        except (AssertionError, LogOffline):
            # A cut that has freed its room, and then finds none, cannot be undone.
            if "after the commit" not in (world.copy.log.offline_reason or ""):
                raise
        else:
            assert world.mirror.state is not MirrorState.FAILED or world.mirror.cause is not None
            worlds.append(world)
    assert any(world.waits_for_room for world in worlds)
    assert len(worlds) > 0.9 * SEEDS // PARTS


@pytest.mark.parametrize("trims", [False, True])
@pytest.mark.parametrize("part", range(PARTS))
def test_an_old_primary_that_follows_the_new_one_loses_no_record_and_needs_no_operator(
    part: int, trims: bool
) -> None:
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    worlds = [rejoined(seed, trims=trims) for seed in seeds]

    if len(worlds) > 10:
        assert any(world.asides() for world in worlds)
        assert any(
            world.mirror.skipped_records if trims else not world.asides() for world in worlds
        )


def without_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy on, however long the mirror has lagged."""
    monkeypatch.setattr(TombstoneWatch, "missed", lambda *_: "")


def gaps_by_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take an answer that was empty for want of room for a gap."""

    async def follow_end(self: MirrorWriter, mirror: object, fetched: object) -> None:
        log, end = mirror.log, fetched.answer.high_watermark  # type: ignore[attr-defined]
        if not len(fetched.records) and end > log.log_end_offset:  # type: ignore[attr-defined]
            log.appender.advance_end(end, leader_epoch=Epoch(max(log.epochs.latest, 0)))

    monkeypatch.setattr(MirrorWriter, "_follow_end", follow_end)


def without_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not say the last epoch, so that the source cannot say where the logs diverge."""
    monkeypatch.setattr(Place, "last_epoch", Epoch(-1))


def without_raising_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the source's epochs at a restart."""
    monkeypatch.setattr(StartCounter, "raise_epoch", lambda *_: None)


def without_leading_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lead with the directory's epoch, even if the batches have later ones."""
    monkeypatch.setattr(PartitionLog, "lead_above", lambda *_: None)


Fault = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[Fault, int] = {
    without_tombstones: 280,
    gaps_by_mistake: 0,
    without_epochs: 0,
    without_raising_the_counter: 0,
    without_leading_above: 0,
}
"""Each fault, with a seed a few before the first one that finds it."""


def answers_of_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Append an answer to the log that is asked for now, although another one was asked for."""
    take = SourceCopier.take

    async def take_anyhow(
        self: SourceCopier, mirror: Mirror, _: Target, fetched: Fetched, ask: AskEpochEnd
    ) -> None:
        if mirror.target is not None:
            await take(self, mirror, mirror.target, fetched, ask)

    monkeypatch.setattr(SourceCopier, "take", take_anyhow)


def safe_time_of_the_old_log_for_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge the new copy by where the old log ends."""
    noted = Mirror.noted

    def noted_for_own(self: Mirror, answer: SourceAnswer, target: Target) -> None:
        noted(self, answer, self.own)
        target.tombstones.safe_ms = self.own.tombstones.safe_ms

    monkeypatch.setattr(Mirror, "noted", noted_for_own)


RESYNC_FAULTS: dict[Fault, int] = {
    answers_of_another_place: 0,
    safe_time_of_the_old_log_for_the_copy: 0,
}


def trust_in_a_source_that_has_forgotten_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every answer that fits for a comparison of both logs."""

    def shows_copy(answer: SourceAnswer, _: Place) -> bool:
        return not answer.error_code and answer.diverging is None

    for module in (copying, findings):
        monkeypatch.setattr(module, "shows_copy", shows_copy)


def copies_that_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose at each start whether the log is a copy."""
    monkeypatch.setattr(LogCommits, "copied_from", property(lambda _: None, lambda *_: None))


REJOIN_FAULTS: dict[Fault, int] = {
    trust_in_a_source_that_has_forgotten_its_epochs: 0,
    copies_that_are_not_remembered: 0,
}
FAULTS |= RESYNC_FAULTS | REJOIN_FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_simulation_finds_a_fault(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    fault(monkeypatch)
    found = []
    for seed in range(FAULTS[fault], FAULTS[fault] + 400):
        try:
            if fault in REJOIN_FAULTS:
                rejoined(seed, trims=True)
            else:
                simulated(seed, resyncs=fault in RESYNC_FAULTS)
        except Exception as error:  # noqa: BLE001 - any failure is what the test wants
            found.append((seed, error))
            break
    assert found, "the fault passed"


async def test_a_cut_that_a_pass_has_overtaken_changes_nothing_and_is_judged_once_more() -> None:
    world = MirrorWorld(seed=0)
    for _ in range(3):
        world.source.append((b"k", b"v"))
    world._remember(0)
    await world.settle()
    verdict = Verdict(guard=Guard.DIVERGES, offset=Offset(1), reason="the logs diverge")
    assert world.mirror.answered(verdict) is Action.CUT
    world.copy.roll()
    world.copy.clean()
    before, log = world.copy.records(), world.copy.log
    assert log.cut_offset_min > 1

    await world.writer.cut(world.mirror, verdict)

    assert (world.copy.records(), world.mirror.cut_records) == (before, 0)
    assert world.mirror.state is MirrorState.CHECKING
    assert world.mirror.own.place.cut_offset_min == log.cut_offset_min
