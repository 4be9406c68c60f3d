"""Faults that tests plant in the tables of keys, to see that they are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cleaner.lookup.dead_notes import DeadNotes
from cleaner.lookup.key_table import KeyTable
from cleaner.lookup.spilled_keys import SpilledKeys
from cleaner.lookup.table_view import TableBasis, TableView
from protocol.wire.numbers import Offset
from storage.formats.compaction_strategy import BY_OFFSET


def count_aborted(patch: pytest.MonkeyPatch) -> None:
    """Records of aborted transactions get into the table."""
    patch.setattr(KeyTable, "_outcomes", lambda *_: None)


def keep_tables(patch: pytest.MonkeyPatch) -> None:
    """A table holds after truncations, undos and changes of strategy."""
    always = TableBasis(BY_OFFSET, 0, Offset(0))
    patch.setattr(TableView, "basis", property(lambda _: always))


def forget_undos(patch: pytest.MonkeyPatch) -> None:
    """Notes that were renewed after a pass stay when it is undone."""
    patch.setattr(
        "storage.log.segment_list.SegmentList.rewrites", property(lambda its: its.truncations)
    )


def forget_what_is_outranked(patch: pytest.MonkeyPatch) -> None:
    """Everything below the table's end counts as a last record."""
    patch.setattr(KeyTable, "live_until", lambda table, _offset: table.end_offset)


def forget_what_passes_have_kept(patch: pytest.MonkeyPatch) -> None:
    """Everything a pass wrote counts as cleaned: nobody compares what it kept."""

    def compared(*_: Any, **__: Any) -> Iterator[None]:
        yield

    patch.setattr(KeyTable, "_compared", compared)


def forget_what_is_outranked_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Until notes are renewed, only those from before are asked."""

    def live_until(notes: Any, offset: Offset, end_offset: Offset) -> Offset:
        asked = notes.latest if notes._earlier is None else notes._earlier
        return Offset(asked.next_dead(offset, end_offset))

    patch.setattr(DeadNotes, "live_until", live_until)


def renew_late(patch: pytest.MonkeyPatch) -> None:
    """A renewal begins with its first step, by when the table may have more than it was to compare."""

    def renew(notes: Any, *arguments: Any) -> Iterator[None]:
        yield from original(notes, *arguments)

    original = DeadNotes.renew
    patch.setattr(DeadNotes, "renew", renew)


def forget_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Keys that have left memory are not found."""
    patch.setattr(SpilledKeys, "rank_of", lambda *_, **__: None)


def prefer_the_disk(patch: pytest.MonkeyPatch) -> None:
    """An earlier record on the disk wins over one in memory."""
    patch.setattr("cleaner.lookup.key_table.wins", lambda *_: False)


def note_nothing_on_the_disk(patch: pytest.MonkeyPatch) -> None:
    """What new records outrank on the disk counts as last records."""
    patch.setattr(KeyTable, "_note_outranked_on_disk", lambda *_: None)
