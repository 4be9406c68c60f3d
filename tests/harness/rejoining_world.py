"""An old primary that follows the new one, in a simulation (`mirror_world.py`).

It may have acknowledged records that the new primary never got. Resyncs begin by themselves.
"""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import UUID

from protocol.wire.numbers import Offset
from server.replication.link_spec import ASIDE
from server.replication.mirror import Mirror
from server.replication.new_copies import NewCopies
from server.replication.target import Target
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from tests.harness.compacted_log import opening, records_of
from tests.harness.mirror_world import SMALL, MirrorWorld

NAME = UUID(int=99)
"""The source's."""


class RejoiningWorld(MirrorWorld):
    """The new primary is the source, and the old one the mirror."""

    own: set[Offset]
    """The offsets of the mirror's own records."""

    def _begin(self) -> None:
        """Let the mirror's log lead, and the source's follow, then lead."""
        for number in range(self.random.randrange(6)):
            for each in (self.copy, self.source):
                each.append((b"k%d" % number, b"both"))
        if self.random.random() < 0.3:
            self.copy.roll()
            self.copy.clean()
        start = self.copy.log.log_end_offset
        for number in range(self.random.randrange(4)):
            self.copy.append((b"own-%d" % number, b"own"))
        self.own = set(map(Offset, range(start, self.copy.log.log_end_offset)))
        self.source.log.lead_above(self.copy.log.leader_epoch)
        self.copy.reopen(is_clean=True)
        self.counter.count += 1
        self._remember(0)
        if self.random.random() < 0.5:
            for _ in range(self.random.randrange(4)):
                self._append()
        if self.trims and self.random.random() < 0.5:
            self._trim()

    async def _tend_by_itself(self) -> None:
        mirrors = {self.mirror.log.topic_partition: self.mirror}
        copies = NewCopies(mirrors, self.writer, self.may_have_own)
        await copies.begin_by_themselves(ASIDE, again=True)

    def _elect(self) -> None:
        """The new primary loses nothing."""

    def _rules(self, target: Target) -> dict[str, bool]:
        is_own = target is self.mirror.own and not target.is_empty
        return {"may_cut": False, "may_have_own": is_own and self.may_have_own(self.mirror)}

    def name_of(self, mirror: Mirror) -> UUID | None:
        return NAME

    def may_have_own(self, mirror: Mirror) -> bool:
        return mirror.log.copied_from != NAME

    def asides(self) -> list[PartitionLog]:
        """Returns the logs that resyncs have put aside."""
        fs, its = self.copy.fs, self.copy.log.identity
        topic, _, name = its.directory.rpartition("/")
        return [
            open_log(fs, replace(its, directory=f"{topic}/{found}"), SMALL, opening(is_clean=True))
            for found in fs.list(topic)
            if re.fullmatch(rf"{name}\.aside\.\d+", found)
        ]

    def lost(self) -> set[Offset]:
        """Returns the offsets of its own records that neither its log nor one put aside has."""
        logs = [self.copy.log, *self.asides()]
        found = {
            record.offset for log in logs for record in records_of(log) if record.value == b"own"
        }
        return self.own - found
