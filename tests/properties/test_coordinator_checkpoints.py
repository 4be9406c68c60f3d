"""Random histories of a coordinator's log: a load with any earlier checkpoint equals one without.

Commits, transactions, deletions, other records, cleaning passes at different times, restarts,
truncations and restores from a backup; checkpoints are made now and then, each from the one that is
there. At every look each checkpoint ever made is put beside the log, and the state that a load finds is
compared with that of the log alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.formats.coordinator_checkpoint import HEADER_BYTES, decode_header
from tests.harness.checkpointed_log import (
    PATH,
    Change,
    CheckpointedLog,
    Clean,
    Cut,
    DeleteRecords,
    Other,
)
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_model import Event, events


@dataclass(frozen=True, slots=True)
class Make:
    """Make a checkpoint of the one that is there and the log after it, with room for so many keys."""

    starts_over: bool


Step = Change | Make | str

_RARE: tuple[st.SearchStrategy[Step], ...] = (
    st.builds(Cut, st.integers(1, 5)),
    st.builds(DeleteRecords, st.integers(1, 3)),
    st.just("restore"),
)
_KINDS: tuple[st.SearchStrategy[Step], ...] = (
    *(events(),) * 24,
    *(st.builds(Other, st.sampled_from("ab"), st.none() | st.integers(0, 3)),) * 3,
    *(st.builds(Clean, st.sampled_from((0, 1_000_000))),) * 4,
    *(st.builds(Make, st.sampled_from((False, False, False, True))),) * 6,
    *(st.sampled_from(("look", "restart", "crash", "roll", "back up")),) * 6,
    *_RARE,
)
STEPS = st.sampled_from(_KINDS).flatmap(lambda kind: kind)


class History:
    def __init__(self) -> None:
        self.log = CheckpointedLog()
        self.made: list[bytes] = []
        self.backups: list[tuple[MemoryFileSystem, int]] = []

    def take(self, step: Step) -> None:
        match step:
            case Make():
                self.make(step)
            case str():
                self.do(step)
            case _:
                self.log.change(step)

    def do(self, step: str) -> None:
        match step:
            case "look":
                self.look()
            case "restart" | "crash":
                self.log.reopen(is_clean=step == "restart")
            case "roll":
                self.log.roll()
            case "back up":
                self.backups.append((self.log.backup(), self.log.log.leader_epoch))
            case "restore" if self.backups:
                self.log.restore(*self.backups[-1])

    def make(self, step: Make) -> None:
        if step.starts_over:
            self.log.put(None)
        if self.log.make() is not None:
            made = self.log.checkpoint
            assert made is not None
            self.made.append(made)

    def look(self) -> None:
        """Load with each checkpoint that was ever made, and with none."""
        there, expected = self.log.checkpoint, self.log.state()
        for each in (*self.made, there):
            self.log.put(each)
            found, report = self.log.load()
            assert found == expected, each and decode_header(each[:HEADER_BYTES], PATH)
            # It stays if it counts, and only then.
            assert (self.log.checkpoint is not None) == (report.checkpoint is not None)
        self.log.put(there)


@settings(max_examples=5000 if "KOMPAKT_SOAK" in os.environ else 150, deadline=None)
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_a_load_with_any_earlier_checkpoint_equals_a_load_without(steps: list[Step]) -> None:
    history = History()
    for step in steps:
        history.take(step)
    history.look()
    # And once more after all that follows has been cleaned, twice, with every horizon past.
    for _ in range(2):
        history.take(Clean(1_000_000))
    history.look()


SOME_EVENTS = st.lists(events(), min_size=2, max_size=12)
AFTERMATHS = st.sampled_from(
    (
        (Clean(0), Clean(1_000_000)),
        (Clean(1_000_000),),
        (DeleteRecords(2),),
        ("crash", Clean(0), "restart", Clean(1_000_000)),
    )
)


@settings(max_examples=2000 if "KOMPAKT_SOAK" in os.environ else 100, deadline=None)
@given(SOME_EVENTS, SOME_EVENTS, AFTERMATHS)
def test_a_checkpoint_is_right_after_the_log_around_it_has_changed(
    before: list[Event], after: list[Event], aftermath: tuple[Step, ...]
) -> None:
    """The batch at its end stays, so that only what follows can tell whether it still counts."""
    history = History()
    steps: list[Step] = [*before, Other("end", 1), Make(False), *after, Other("tail", 1)]
    for step in (*steps, *aftermath):
        history.take(step)
    history.look()
