"""How many tombstones still have to go, how many bytes, and when."""

from __future__ import annotations

from cleaner.rules.tombstone_debt import TombstoneDebt, tombstone_debt, total_debt
from protocol.wire.numbers import Offset
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import UNKNOWN, SegmentRow

NONE = TombstoneDebt()


def counted(
    tombstones: int, *, size: int = 10, first_ms: int = 100, last_ms: int = 200
) -> SegmentRow:
    return SegmentRow(
        base_offset=Offset(0),
        file_version=1,
        tombstone_count=tombstones,
        tombstone_bytes=size,
        least_delete_horizon_ms=first_ms,
        tombstones_due_ms=last_ms,
    )


def test_segments_without_tombstones_owe_nothing_whatever_their_markers_wait_for() -> None:
    rows = [counted(0, size=0, last_ms=UNKNOWN), SegmentRow(base_offset=Offset(5), file_version=2)]

    assert tombstone_debt(rows) == NONE


def test_the_first_date_is_the_earliest_and_all_are_due_at_the_last() -> None:
    debt = tombstone_debt([counted(2), counted(3, size=7, first_ms=50, last_ms=150), counted(0)])

    assert debt == TombstoneDebt(tombstones=5, bytes=17, first_due_ms=50, all_due_ms=200)


def test_a_tombstone_without_a_date_leaves_the_end_open() -> None:
    debt = tombstone_debt([counted(1), counted(1, first_ms=UNKNOWN, last_ms=LONG_MAX)])

    assert (debt.tombstones, debt.first_due_ms, debt.all_due_ms) == (2, 100, None)


def test_what_an_earlier_release_has_counted_has_no_bytes_and_no_end() -> None:
    debt = tombstone_debt([counted(1), counted(1, size=UNKNOWN, last_ms=UNKNOWN)])

    assert (debt.tombstones, debt.bytes, debt.all_due_ms) == (2, None, None)


def test_the_debts_of_several_logs_add_up() -> None:
    one = TombstoneDebt(tombstones=1, bytes=5, first_due_ms=10, all_due_ms=20)
    other = TombstoneDebt(tombstones=2, bytes=6, first_due_ms=5, all_due_ms=15)
    open_end = TombstoneDebt(tombstones=1, bytes=None, first_due_ms=None, all_due_ms=None)

    assert total_debt([one, NONE, other]) == TombstoneDebt(
        tombstones=3, bytes=11, first_due_ms=5, all_due_ms=20
    )
    assert total_debt([one, open_end]) == TombstoneDebt(
        tombstones=2, bytes=None, first_due_ms=10, all_due_ms=None
    )
    assert total_debt([]) == NONE
