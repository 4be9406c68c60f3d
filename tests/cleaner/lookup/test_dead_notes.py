"""The notes of what is not a last record follow passes, and miss nothing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cleaner.lookup import dead_notes
from cleaner.lookup.key_table import KeyTable, notes_bytes
from cleaner.lookup.last_records import made_table
from cleaner.lookup.segment_keys import SegmentKeys
from cleaner.lookup.table_view import table_view
from protocol.wire.numbers import Offset
from storage.files.paths import KEYS, LOG
from storage.formats.config_property import LONG_MAX
from storage.formats.key_sidecar import KeySidecar
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog, meter_of
from tests.harness.damage import flip

ALL = Offset(0)


@pytest.fixture(autouse=True)
def one_offset_to_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_notes, "BLOCK_SHIFT_MIN", 0)


class Noted:
    """A log with a table of its keys, by default with a segment for each record."""

    def __init__(self, config: LogConfig = CONFIG, *, segment_bytes: int = 1) -> None:
        self.log = CompactedLog(replace(config, segment_bytes=segment_bytes))
        for number in range(6):
            self.log.append((b"key-%d" % (number % 3), b"v"))
        view = table_view(self.log.log, ALL)
        self.table = made_table(
            view, SETTINGS, meter_of(self.log.log, self.log.log.generation), bytes_max=1 << 20
        )

    def put(self, key: bytes, value: bytes | None = b"later") -> None:
        """Append a record in a segment of its own, and extend the table by it."""
        self.log.append((key, value))
        self.extend()

    def extend(self) -> None:
        view = table_view(self.log.log, self.table.end_offset)
        self.table.extend(view, meter_of(self.log.log, self.log.log.generation))

    def steps(self) -> Iterator[None]:
        view = table_view(self.log.log, ALL)
        return self.table.renew_notes(view, meter_of(self.log.log, self.log.log.generation))

    def renew(self) -> None:
        for _ in self.steps():
            pass

    @property
    def dead(self) -> list[int]:
        """The offsets below the table's end that are noted."""
        end = self.table.end_offset
        return [at for at in range(end) if self.table.live_until(Offset(at)) == at]


def test_what_a_pass_has_removed_is_noted_until_the_notes_are_renewed() -> None:
    noted = Noted()
    assert not noted.table.notes_lag(noted.log.log)
    noted.log.clean()
    assert noted.dead == [0, 1, 2]
    assert noted.table.notes_lag(noted.log.log)

    noted.renew()
    assert noted.dead == []
    assert not noted.table.notes_lag(noted.log.log)


def test_older_values_that_a_pass_keeps_stay_noted() -> None:
    noted = Noted(replace(CONFIG, compaction_versions=2))
    noted.put(b"key-0")
    noted.log.clean()
    noted.renew()
    assert [each.offset for each in noted.log.records()] == [1, 2, 3, 4, 5, 6]
    assert noted.dead == [1, 2, 3]


def test_records_within_the_lag_stay_noted() -> None:
    noted = Noted()
    noted.log.clean()
    noted.log.log.update_config(replace(noted.log.log.config, min_compaction_lag_ms=LONG_MAX))
    noted.put(b"key-0")
    noted.log.clean()
    noted.renew()
    assert noted.dead == [3]


def test_segments_that_no_pass_has_replaced_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = Noted()
    noted.log.clean()
    noted.renew()
    noted.put(b"key-1")
    noted.put(b"key-3")
    noted.put(b"key-3")
    read = list[int]()

    def opened(keys: SegmentKeys) -> KeySidecar | None:
        read.append(keys.base_offset)
        return original(keys)

    original = SegmentKeys._opened
    monkeypatch.setattr(SegmentKeys, "_opened", opened)
    noted.renew()
    assert (noted.dead, read) == ([4, 7], [])
    noted.log.clean()
    read.clear()
    noted.renew()
    rewritten = {each.base_offset for each in noted.log.log.segments if each.row().is_cleaned}
    assert noted.dead == []
    assert set(read) <= rewritten


@pytest.mark.parametrize("taken", range(6))
def test_what_loses_its_place_between_two_steps_is_noted(taken: int) -> None:
    noted = Noted()
    noted.log.clean()
    steps = noted.steps()
    for _ in zip(range(taken), steps, strict=False):
        pass
    noted.put(b"key-1")
    noted.put(b"key-1")
    assert {4, 6} <= {*noted.dead}
    for _ in steps:
        assert {4, 6} <= {*noted.dead}
    assert noted.dead == [4, 6]


@pytest.mark.parametrize("taken", range(6))
def test_after_a_renewal_that_has_not_ended_nothing_is_missing_and_the_next_one_makes_up_for_it(
    taken: int,
) -> None:
    noted = Noted()
    noted.log.clean()
    for _ in zip(range(taken), noted.steps(), strict=False):
        pass
    noted.put(b"key-1")
    assert {0, 1, 2, 4} <= {*noted.dead} or noted.dead == [4]
    noted.renew()
    assert noted.dead == [4]


def test_a_segment_that_another_pass_replaces_meanwhile_is_read_by_the_next_renewal() -> None:
    noted = Noted()
    noted.log.clean()
    steps = noted.steps()
    noted.put(b"key-0")
    noted.log.clean()
    for _ in steps:
        pass
    assert {3} <= {*noted.dead}
    assert noted.table.notes_lag(noted.log.log)
    noted.renew()
    assert noted.dead == []


def test_a_damaged_segment_stays_as_it_is_noted() -> None:
    noted = Noted(segment_bytes=1 << 20)
    noted.log.clean()
    segment = noted.log.log.segments[0]
    flip(noted.log.fs, segment.path(LOG), segment.size - 1)
    noted.log.fs.unlink(segment.path(KEYS))
    noted.renew()
    assert noted.dead == [0, 1, 2]


def test_records_without_a_key_stay_noted() -> None:
    noted = Noted()
    noted.log.append((None, b"unkeyed"))
    noted.extend()
    noted.log.clean()
    noted.renew()
    assert 6 in noted.dead


@pytest.mark.parametrize("size", [1 << 18, 5_000_000, 1 << 26])
def test_map_and_notes_of_a_table_take_what_it_was_granted_at_most(size: int) -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    table = KeyTable(table_view(log.log, ALL), SETTINGS, bytes_max=size)
    view = table_view(log.log, ALL)
    table.extend(view, meter_of(log.log, log.log.generation))
    steps = table.renew_notes(view, meter_of(log.log, log.log.generation))
    next(steps)

    assert table._notes._earlier is not None
    notes = table._notes.latest.memory_bytes + table._notes._earlier.memory_bytes
    assert 0 < notes <= notes_bytes(size) <= size // 64
    assert table._map.memory_bytes + notes <= size
