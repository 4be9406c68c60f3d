"""A random history with every feature that is read by a table of its keys."""

from __future__ import annotations

from contextlib import suppress

from storage.files.errors import CorruptLog
from tests.harness.every_feature import EveryFeature


class ReadHistory(EveryFeature):
    """A history in which something is read after about half of the steps, so that a table has to catch
    up with several of them. Subclasses say what."""

    def __init__(self, seed: int) -> None:
        self.reads = 0
        super().__init__(seed)

    def read(self) -> None:
        """Read by the table, and compare with what a reader of the log finds. May end at damage."""
        raise NotImplementedError

    def check(self) -> None:
        super().check()
        if self.random.random() < 0.5:
            damage = (CorruptLog,) if self.watched.spoiled else ()
            with self.ends_at_damage(), suppress(*damage):
                self.read()
                self.reads += 1

    def play_to_the_end(self, steps: int) -> None:
        self.play(steps)
        self.finish()
