"""Random histories of a coordinator's log and a standby's copy of it: at equal ends, equal states.

The leader commits, runs transactions, deletes, cleans, loses power, is cut, is restored from a backup,
and moves its log start. The copy follows a request at a time, pauses, makes checkpoints, and loses
power. After each step its files have a state that the leader has had at that end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pacing.meter import CleaningAborted
from tests.harness.checkpointed_log import (
    Change,
    CheckpointedLog,
    Clean,
    Cut,
    DeleteRecords,
    Other,
    State,
)
from tests.harness.followed_log import FollowedLog
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.offsets_model import Commit, events


@dataclass(frozen=True, slots=True)
class Steps:
    """Requests of the follower."""

    count: int


@dataclass(frozen=True, slots=True)
class Crash:
    """A power cut of the follower."""

    loss: Loss
    seed: int


Step = Change | Steps | Crash | str

_RARE: tuple[st.SearchStrategy[Step], ...] = (
    st.builds(Cut, st.integers(1, 5)),
    st.builds(DeleteRecords, st.integers(1, 3)),
    st.just("restore"),
    st.just("leader crash"),
)
_KINDS: tuple[st.SearchStrategy[Step], ...] = (
    *(events(),) * 20,
    *(st.builds(Other, st.sampled_from("ab"), st.none() | st.integers(0, 3)),) * 3,
    *(st.builds(Clean, st.sampled_from((0, 1_000_000))),) * 6,
    *(st.builds(Steps, st.integers(1, 8)),) * 10,
    *(st.builds(Crash, st.sampled_from(Loss), st.integers(0, 99)),) * 3,
    *(st.sampled_from(("restart", "own", "order", "made", "leader makes", "back up", "catch up")),)
    * 8,
    *_RARE,
)
STEPS = st.sampled_from(_KINDS).flatmap(lambda kind: kind)


class History:
    def __init__(self) -> None:
        self.world = FollowedLog()
        self.known: dict[int, list[State]] = {0: [self.leader.state()]}
        """The states that the leader has had, by its end."""
        self.backups: list[MemoryFileSystem] = []
        self.order = self.world.copy.order()

    @property
    def leader(self) -> CheckpointedLog:
        return self.world.leader

    def take(self, step: Step) -> None:
        leader, world = self.leader, self.world
        match step:
            case Cut(offsets) if leader.log.log_end_offset - offsets < leader.log.clean_offset:
                return  # Recovery cuts nothing that was synced, and cleaning sees nothing else.
            case Cut():
                end = leader.log.log_end_offset
                leader.change(step)
                if leader.log.log_end_offset < end:
                    # A log that ends in a hole has no checkpoint up to its end. A leader's never does:
                    # what recovery cuts off, it ends at a batch.
                    leader.play(Commit("a", (0,)))
            case Steps():
                for _ in range(step.count):
                    world.step()
            case Crash():
                world.crash(step.loss, Random(step.seed))
            case str():
                self.do(step)
            case _:
                leader.change(step)
        self.check()

    def do(self, step: str) -> None:
        world, leader = self.world, self.leader
        match step:
            case "restart":
                world.restart()
            case "leader crash":
                leader.reopen(is_clean=False)
            case "own" if world.copy.wanted is None:
                world.make_checkpoint()
            case "order":
                self.order = world.copy.order()
            case "made":
                self.make_ordered()
            case "leader makes":
                leader.make()
            case "back up":
                self.backups.append(leader.backup())
            case "restore" if self.backups:
                # In an epoch of its own: a Fetch cannot distinguish two histories in one epoch.
                leader.restore(self.backups[-1], leader.log.leader_epoch)
            case "catch up" if leader.log.log_end_offset:
                world.catch_up()

    def make_ordered(self) -> None:
        """Make the checkpoint that was ordered some steps ago, unless a restart was in between."""
        copy = self.world.copy
        if self.order.log is not copy.log:
            return
        try:
            made = copy.make_checkpoint(self.order)
        except CleaningAborted:
            return
        if made is not None:
            copy.made(made)

    def check(self) -> None:
        """The copy has a state that the leader has had at that end."""
        leader, copy = self.leader, self.world.copy
        states = self.known.setdefault(leader.log.high_watermark, [])
        state = leader.state()
        if state not in states:
            states.append(state)
        assert copy.is_whole
        assert self.world.state() in self.known[copy.end]


def can_be_followed(leader: CheckpointedLog) -> bool:
    """Returns whether the leader has anything: without, it cannot make a checkpoint."""
    return leader.log.high_watermark > leader.log.log_start_offset


@settings(max_examples=3000 if "KOMPAKT_SOAK" in os.environ else 150, deadline=None)
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_the_copy_always_has_a_state_of_the_leader_and_in_the_end_the_last_one(
    steps: list[Step],
) -> None:
    history = History()
    for step in steps:
        if step == "catch up" and not can_be_followed(history.leader):
            continue
        history.take(step)
    history.take(Commit("b", (0,)))
    history.world.catch_up()
    assert history.world.copy.end == history.leader.log.high_watermark
    assert history.world.state() == history.leader.state()
    history.world.crash()
    assert history.world.state() == history.leader.state()
    made = history.leader.make()
    order = history.world.copy.digest_order(history.world.copy.end)
    assert order is not None
    if made is not None:
        assert history.world.copy.digest(order).digest == made.digest


@dataclass(frozen=True, slots=True)
class Values:
    """New values of transactional ids, in one batch; None is a tombstone."""

    values: tuple[tuple[bytes, bytes | None], ...]


_VALUES = st.lists(
    st.tuples(st.sampled_from((b"x", b"y", b"z")), st.none() | st.sampled_from((b"1", b"2"))),
    min_size=1,
    max_size=3,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: Values(tuple(pairs)))
_TRANSACTION_KINDS: tuple[st.SearchStrategy[Values | Step], ...] = (
    *(_VALUES,) * 8,
    *(st.builds(Clean, st.sampled_from((0, 1_000_000))),) * 3,
    *(st.builds(Steps, st.integers(1, 8)),) * 4,
    *(st.builds(Crash, st.sampled_from(Loss), st.integers(0, 99)),) * 2,
    *(st.sampled_from(("own", "restart")),) * 3,
)


@settings(max_examples=2000 if "KOMPAKT_SOAK" in os.environ else 100, deadline=None)
@given(st.lists(st.sampled_from(_TRANSACTION_KINDS).flatmap(lambda kind: kind), min_size=10))
def test_the_copy_of_transactional_ids_has_the_last_value_of_each(
    steps: list[Values | Step],
) -> None:
    world, expected = FollowedLog(has_commits=False), dict[bytes, bytes | None]()
    known: dict[int, dict[bytes, bytes]] = {0: {}}
    for step in (*steps, Values(((b"x", b"3"),))):
        match step:
            case Values():
                expected |= dict(step.values)
                end = world.leader.add_pairs(step.values)
                known[end] = {key: value for key, value in expected.items() if value is not None}
            case Clean():
                world.leader.now_ms += step.after_ms
                world.leader.roll()
                if world.leader.assess(requested=True).reason is not None:
                    world.leader.execute(world.leader.plan())
            case Steps():
                for _ in range(step.count):
                    world.step()
            case Crash():
                world.crash(step.loss, Random(step.seed))
            case "own" if world.copy.wanted is None:
                world.make_checkpoint()
            case "restart":
                world.restart()
            case _:
                pass  # It needs the leader's checkpoint, so it makes none.
        assert world.values() == known[world.copy.end]
    world.catch_up()
    assert world.values() == known[world.leader.log.high_watermark]
