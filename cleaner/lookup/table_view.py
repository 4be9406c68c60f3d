"""What a table of keys reads of a log at one moment, and on what the table depends."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.numbers import Offset
from storage.formats.compaction_strategy import CompactionStrategy
from storage.log.cleaning_view import TailView
from storage.log.log import PartitionLog
from storage.threads import loop_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """What a table reads of a log, at one moment."""

    hash_key: bytes
    strategy: CompactionStrategy
    tail: TailView
    """The segments with offsets that the table lacks."""

    @property
    def basis(self) -> TableBasis:
        """Returns on what a table depends that is made of this."""
        start = self.tail.log_start_offset if self.strategy.has_versions else Offset(0)
        return TableBasis(self.strategy, self.tail.rewrites, start)


@dataclass(frozen=True, slots=True)
class TableBasis:
    """On what a table depends: with another one it has to be made again."""

    strategy: CompactionStrategy
    rewrites: int
    log_start_offset: Offset
    """Where records have versions: one below the start may have outranked others. Else 0."""


@loop_thread
def table_view(log: PartitionLog, from_offset: Offset) -> TableView:
    """Returns what a table reads that has the offsets below `from_offset`."""
    return TableView(
        hash_key=log.identity.hash_key,
        strategy=log.config.strategy,
        tail=log.tail_view(from_offset),
    )
