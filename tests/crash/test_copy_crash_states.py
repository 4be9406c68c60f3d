"""Stop a standby at every operation of its disk while it follows a coordinator's log.

The leader commits, deletes and cleans; the copy follows, takes the leader's checkpoints, makes its own
and drops its log before them. After every crash the copy has a state that it had before it or was about
to have, and catches up to the leader's.

KOMPAKT_CRASH_STATES sets how many states are tried: one for 25 of the log's own, which take less time.
KOMPAKT_CRASH_SEED is where the seeds begin.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from server.standby.partition_copy import PartitionCopy
from tests.harness.checkpointed_log import State
from tests.harness.followed_log import FollowedLog, copy_state, open_copy
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.offsets_model import Commit, Event, Marker, Tombstones

STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "4000")) // 25
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))
STEPS, STATES_EACH = 40, 250


def event(random: Random) -> Event:
    partitions = random.choice(((0,), (1,), (0, 1)))
    match random.randrange(5):
        case 0:
            return Tombstones(random.choice("ab"), partitions)
        case 1:
            return Marker(1000, is_commit=random.random() < 0.7)
        case 2:
            return Commit("a", partitions, 1000)
        case _:
            return Commit(random.choice("ab"), partitions)


class Sweep:
    """One history, and the disks that crashes in it leave."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.crashes = Random(seed + 1_000_003)
        self.world = FollowedLog()
        self.known: dict[int, list[State]] = {}
        self.left: list[tuple[MemoryFileSystem, int, str]] = []
        """The disks, with the end that was durable at least, and what was done."""
        self.installs = self.own = 0

    def play(self) -> None:
        self.note()
        for _ in range(STEPS):
            kind = self.random.choice(("play",) * 4 + ("follow",) * 3 + ("clean", "own", "restart"))
            durable_end = self.world.copy.end
            self.world.disk.on_operation = lambda action, path, at=(kind, durable_end): self.crash(
                at[0], at[1], f"{action} {path}"
            )
            self.do(kind)
        self.world.disk.on_operation = None
        self.installs += self.world.copy.installs

    def do(self, kind: str) -> None:
        world, leader = self.world, self.world.leader
        match kind:
            case "play":
                leader.play(event(self.random))
                self.note()
            case "follow":
                world.catch_up()
            case "clean":
                leader.now_ms += 1_000_000
                leader.roll()
                if leader.assess(requested=True).reason is None:
                    return
                leader.execute(leader.plan())
                leader.play(Commit("b", (0,)))
                self.note()
            case "own":
                self.own += 1
                world.make_checkpoint()
            case _:
                self.installs += world.copy.installs
                world.restart()

    def note(self) -> None:
        """Keep what the leader's log adds up to at its end. It is never cut here."""
        log = self.world.leader
        self.known.setdefault(log.log.high_watermark, []).append(log.state())

    def crash(self, kind: str, durable_end: int, operation: str) -> None:
        for loss in (Loss.TORN, self.crashes.choice(tuple(Loss))):
            disk = self.world.disk.after_crash(loss, self.crashes)
            self.left.append((disk, durable_end, f"{kind}: {loss.name} after {operation}"))

    def check(self, disk: MemoryFileSystem, durable_end: int, what: str) -> None:
        copy = open_copy(disk)
        assert copy.is_whole, what
        assert copy.end >= durable_end, what
        assert copy_state(disk, copy.log) in self.known[copy.end], what
        # Another power cut right after the start changes nothing.
        again = open_copy(disk.after_crash(Loss.EVERYTHING, Random(0)))
        assert again.end == copy.end, what
        self.world.disk, self.world.copy = disk, copy
        self.world.catch_up()
        assert self.world.state() == self.world.leader.state(), what


def test_no_crash_of_a_standby_mixes_or_loses_what_was_durable() -> None:
    states, seed, installs, own = 0, SEED, 0, 0
    while states < STATES:
        sweep = Sweep(seed)
        sweep.play()
        found = sweep.left
        if len(found) > STATES_EACH:
            found = Random(seed).sample(found, STATES_EACH)
        for number, (disk, durable_end, what) in enumerate(found):
            sweep.check(disk, durable_end, f"seed {seed}, state {number}: {what}")
        states += len(found)
        installs += sweep.installs
        own += sweep.own
        seed += 1
    assert installs > 0
    assert own > 0


def test_the_sweep_catches_an_install_that_a_start_does_not_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PartitionCopy, "_finish_install", lambda self: None)

    def sweep_many() -> None:
        for seed in range(1, 30):
            sweep = Sweep(seed)
            sweep.play()
            for disk, durable_end, what in sweep.left:
                sweep.check(disk, durable_end, what)

    with pytest.raises(AssertionError):
        sweep_many()
