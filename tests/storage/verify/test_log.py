"""Verifying a log finds every kind of damage, and nothing in a log that is in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from protocol.records.batch_header import LEADER_EPOCH_AT
from protocol.records.batch_scan import crc32c
from protocol.records.record_batch import Record, build_batch
from protocol.wire.numbers import Offset
from storage.files.paths import (
    LEADER_EPOCH_CHECKPOINT,
    MANIFEST,
    OFFSET_INDEX,
    TIME_INDEX,
    UNDO,
    join,
)
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment.sealed_index import OFFSET_ENTRY, TIME_ENTRY
from storage.verify.findings import Check, LogReport, Severity
from storage.verify.log import verify_log
from tests.harness.compacted_log import CONFIG, CompactedLog, identity
from tests.harness.compacted_log import DIRECTORY as COMPACTED
from tests.harness.damage import (
    change_row,
    flip,
    log_files,
    read_manifest,
    restamp,
    rewrite_batch,
    write_manifest,
)
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred, LogHome
from tests.harness.memory_fs import MemoryFileSystem

DIRECTORY = "/data/orders/0"


class Home:
    """A log of three sealed segments with three batches each, and one more batch."""

    def __init__(self, *, background: Deferred | None = None) -> None:
        self.fs = MemoryFileSystem()
        self.home = LogHome(self.fs, background=background)
        self.log = self.home.create()
        for segment in range(3):
            for batch in range(3):
                self.append(sequence=3 * segment + batch)
            self.log.roll(0)
        self.append(sequence=9)

    def append(self, *, sequence: int) -> None:
        batch = batch_of(
            [(b"key", bytes(60))], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        assert isinstance(self.log.appender.append_as_leader(valid(batch), now_ms=0), Appended)
        self.log.advance_high_watermark(self.log.sync())

    def reopen(self, *, is_clean: bool) -> PartitionLog:
        self.log = self.home.open(is_clean=is_clean)
        return self.log

    def path(self, index: int, kind: str = "") -> str:
        path = log_files(self.fs, DIRECTORY)[index]
        return path.removesuffix(".log") + kind if kind else path

    def look(self, *, was_clean: bool = False) -> LogReport:
        return verify_log(self.fs, self.home.identity, was_clean=was_clean)


def found(report: LogReport) -> list[tuple[Severity, Check]]:
    return [(finding.severity, finding.check) for finding in report.findings]


def test_a_log_in_use_is_sound_and_counted() -> None:
    home = Home()

    report = home.look()

    assert report.findings == ()
    assert (report.segments, report.batches, report.records) == (4, 10, 10)
    assert report.bytes == sum(map(home.fs.size, log_files(home.fs, DIRECTORY)))
    assert (report.log_start_offset, report.recovery_point, report.log_end_offset) == (0, 9, 10)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_was_stopped_and_started_is_sound(is_clean: bool) -> None:
    home = Home()
    if is_clean:
        home.log.close()
        assert home.look(was_clean=True).findings == ()
    home.reopen(is_clean=is_clean)
    home.append(sequence=10)

    assert home.look().findings == ()


def test_a_new_log_is_sound() -> None:
    fs = MemoryFileSystem()
    home = LogHome(fs)
    home.create()

    assert verify_log(fs, home.identity, was_clean=True).findings == ()


def test_a_cleaned_log_is_sound() -> None:
    log = CompactedLog()
    for round_ in range(3):
        for key in range(40):
            value = None if key == round_ else b"%d" % round_
            sequence = round_ * 40 + key
            pair = (b"key-%d" % key, value)
            log.append(pair, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.clean()

    report = verify_log(log.fs, identity())

    assert report.findings == ()
    assert report.records < 120
    assert report.clean_offset == 120


def flip_in_a_sealed_segment(home: Home) -> None:
    flip(home.fs, home.path(1), 80)


def cut_a_sealed_segment(home: Home) -> None:
    home.fs.open(home.path(1)).truncate(300)


def remove_a_listed_segment(home: Home) -> None:
    home.fs.unlink(home.path(1))


def list_too_few_records(home: Home) -> None:
    change_row(home.fs, DIRECTORY, 1, lambda row: replace(row, record_count=2))


def list_a_wrong_timestamp(home: Home) -> None:
    change_row(home.fs, DIRECTORY, 1, lambda row: replace(row, max_timestamp=999_999))


def list_a_wrong_end(home: Home) -> None:
    change_row(home.fs, DIRECTORY, 1, lambda row: replace(row, end_offset=Offset(5)))


def list_a_wrong_size(home: Home) -> None:
    change_row(home.fs, DIRECTORY, 1, lambda row: replace(row, size=row.size - 10))


def list_overlapping_segments(home: Home) -> None:
    change_row(home.fs, DIRECTORY, 0, lambda row: replace(row, end_offset=Offset(4)))


def damage_the_manifest(home: Home) -> None:
    flip(home.fs, join(DIRECTORY, MANIFEST), -1)


def remove_the_manifest(home: Home) -> None:
    home.fs.unlink(join(DIRECTORY, MANIFEST))


def be_clean_past_the_end(home: Home) -> None:
    manifest = replace(read_manifest(home.fs, DIRECTORY), clean_offset=Offset(99))
    write_manifest(home.fs, DIRECTORY, manifest)


def start_past_the_end(home: Home) -> None:
    manifest = replace(read_manifest(home.fs, DIRECTORY), log_start_offset=Offset(99))
    write_manifest(home.fs, DIRECTORY, manifest)


def let_the_epoch_go_back(home: Home) -> None:
    restamp(home.fs, home.path(1), 0, leader_epoch=0)


def let_the_epoch_run_ahead(home: Home) -> None:
    restamp(home.fs, home.path(2), home.fs.size(home.path(2)) // 3 * 2, leader_epoch=5)


def let_the_checkpoint_lie(home: Home) -> None:
    path = join(DIRECTORY, LEADER_EPOCH_CHECKPOINT)
    home.fs.write_bytes(path, b"0\n2\n0 0\n1 4\n")


def damage_the_checkpoint(home: Home) -> None:
    home.fs.write_bytes(join(DIRECTORY, LEADER_EPOCH_CHECKPOINT), b"0\n7\n")


def remove_the_checkpoint(home: Home) -> None:
    home.fs.unlink(join(DIRECTORY, LEADER_EPOCH_CHECKPOINT))


def remove_an_index(home: Home) -> None:
    home.fs.unlink(home.path(1, OFFSET_INDEX))


def cut_an_index(home: Home) -> None:
    home.fs.open(home.path(1, TIME_INDEX)).truncate(5)


def let_an_index_lie(home: Home) -> None:
    home.fs.overwrite(home.path(1, OFFSET_INDEX), 0, OFFSET_ENTRY.pack(1, 130))


def let_an_index_point_outside(home: Home) -> None:
    home.fs.overwrite(home.path(1, OFFSET_INDEX), 0, OFFSET_ENTRY.pack(2, 1 << 20))


def let_a_time_index_lie(home: Home) -> None:
    path = home.path(1, TIME_INDEX)
    home.fs.overwrite(path, 0, TIME_ENTRY.pack(5, 0))


def damage_a_snapshot(home: Home) -> None:
    flip(home.fs, f"{DIRECTORY}/{9:020d}.snapshot", 30)


def let_a_snapshot_be_behind(home: Home) -> None:
    older = home.fs.read_bytes(f"{DIRECTORY}/{6:020d}.snapshot")
    home.fs.write_bytes(f"{DIRECTORY}/{9:020d}.snapshot", older)


def let_a_sequence_differ(home: Home) -> None:
    rewrite_batch(home.fs, home.path(2), home.fs.size(home.path(2)) // 3 * 2, sequence=80)


def keep_a_file_that_nothing_explains(home: Home) -> None:
    home.fs.write_bytes(f"{DIRECTORY}/{4:020d}.v999.log", bytes(batch_of([(b"k", b"v")])))


def keep_a_segment_behind_the_end(home: Home) -> None:
    home.fs.write_bytes(f"{DIRECTORY}/{70:020d}.v999.log", bytes(batch_of([(b"k", b"v")])))


ERRORS: list[tuple[Callable[[Home], None], Check]] = [
    (flip_in_a_sealed_segment, Check.BATCH),
    (cut_a_sealed_segment, Check.FILES),
    (remove_a_listed_segment, Check.FILES),
    (list_a_wrong_end, Check.ROW),
    (list_a_wrong_size, Check.BATCH),
    (list_overlapping_segments, Check.MANIFEST),
    (damage_the_manifest, Check.MANIFEST),
    (remove_the_manifest, Check.MANIFEST),
    (be_clean_past_the_end, Check.OFFSETS),
    (start_past_the_end, Check.OFFSETS),
    (let_the_epoch_go_back, Check.EPOCH),
    (let_the_epoch_run_ahead, Check.EPOCH),
    (let_the_checkpoint_lie, Check.EPOCH),
    (let_a_snapshot_be_behind, Check.PRODUCERS),
    (let_a_sequence_differ, Check.PRODUCERS),
]
WARNINGS: list[tuple[Callable[[Home], None], Check]] = [
    (list_too_few_records, Check.ROW),
    (list_a_wrong_timestamp, Check.ROW),
    (damage_the_checkpoint, Check.EPOCH),
    (remove_the_checkpoint, Check.EPOCH),
    (remove_an_index, Check.INDEX),
    (cut_an_index, Check.INDEX),
    (let_an_index_lie, Check.INDEX),
    (let_an_index_point_outside, Check.INDEX),
    (let_a_time_index_lie, Check.INDEX),
    (damage_a_snapshot, Check.PRODUCERS),
    (keep_a_file_that_nothing_explains, Check.FILES),
    (keep_a_segment_behind_the_end, Check.FILES),
]


@pytest.mark.parametrize(
    ("damage", "check", "severity"),
    [pytest.param(*case, Severity.ERROR, id=case[0].__name__) for case in ERRORS]
    + [pytest.param(*case, Severity.WARNING, id=case[0].__name__) for case in WARNINGS],
)
def test_damage_is_found(damage: Callable[[Home], None], check: Check, severity: Severity) -> None:
    home = Home()
    damage(home)
    before = {name: home.fs.read_bytes(join(DIRECTORY, name)) for name in home.fs.list(DIRECTORY)}

    report = home.look()

    assert (severity, check) in found(report), report.findings
    if severity is Severity.WARNING:
        assert report.errors == ()
    after = {name: home.fs.read_bytes(join(DIRECTORY, name)) for name in home.fs.list(DIRECTORY)}
    assert after == before, "a look changes nothing"


def test_any_flipped_bit_of_any_file_is_noticed() -> None:
    """Except the epoch of batches after the recovery point, which only the batches have, and a line
    break that became another one.
    """
    home, random = Home(), Random(1)
    active = home.path(-1).rpartition("/")[2]
    unnoticed = set()
    for name in home.fs.list(DIRECTORY):
        data = home.fs.read_bytes(join(DIRECTORY, name))
        for at in range(len(data)):
            damaged = bytearray(data)
            damaged[at] ^= 1 << random.randrange(8)
            home.fs.write_bytes(join(DIRECTORY, name), bytes(damaged))
            if not home.look().findings:
                unnoticed.add((name, at))
        home.fs.write_bytes(join(DIRECTORY, name), data)

    assert {name for name, _ in unnoticed} <= {active, LEADER_EPOCH_CHECKPOINT}
    assert {at for name, at in unnoticed if name == active} <= {12, 13, 14, 15}
    checkpoint = home.fs.read_bytes(join(DIRECTORY, LEADER_EPOCH_CHECKPOINT))
    breaks = {at for name, at in unnoticed if name == LEADER_EPOCH_CHECKPOINT}
    assert {checkpoint[at] for at in breaks} <= set(b"\n")


def test_a_damaged_batch_is_named_by_its_place_and_the_ones_behind_it_are_read() -> None:
    home = Home()
    flip_in_a_sealed_segment(home)

    report = home.look()

    assert [(each.path, each.position) for each in report.errors] == [(home.path(1), 0)]
    assert "carries CRC" in report.errors[0].text
    assert report.batches == 9


def test_a_torn_tail_of_the_active_segment_is_a_note() -> None:
    home = Home()
    home.append(sequence=10)
    home.fs.open(home.path(-1)).truncate(home.fs.size(home.path(-1)) - 9)

    report = home.look()

    assert found(report) == [(Severity.NOTE, Check.BATCH)]
    assert report.log_end_offset == 10


def test_damage_before_sound_batches_of_the_tail_is_said_for_recovery_will_cut_there() -> None:
    home = Home()
    home.append(sequence=10)
    flip(home.fs, home.path(-1), 80)

    report = home.look()

    assert (Severity.WARNING, Check.BATCH) in found(report)
    assert report.log_end_offset == 9


@pytest.mark.parametrize("base_offset", [0, 1 << 40])
def test_an_offset_out_of_place_in_the_tail_is_where_recovery_will_cut(base_offset: int) -> None:
    """The CRC does not cover it, so a torn sector may damage it in an otherwise sound batch."""
    home = Home()
    home.append(sequence=10)
    middle = home.fs.size(home.path(-1)) // 2
    home.fs.overwrite(home.path(-1), middle, base_offset.to_bytes(8))

    report = home.look()

    assert found(report) == [(Severity.WARNING, Check.BATCH)]
    assert report.log_end_offset == 10


def test_a_batch_that_recovery_will_cut_says_nothing_about_leader_epochs() -> None:
    """Offset and epoch lie before the CRC, so a batch with a torn offset may have a new epoch."""
    home = Home()
    home.append(sequence=10)
    middle = home.fs.size(home.path(-1)) // 2
    home.fs.overwrite(home.path(-1), middle, (0).to_bytes(8))
    home.fs.overwrite(home.path(-1), middle + LEADER_EPOCH_AT, (99).to_bytes(4))

    assert found(home.look()) == [(Severity.WARNING, Check.BATCH)]


def test_a_clean_stop_makes_damage_of_the_active_segment_an_error() -> None:
    home = Home()
    home.log.close()
    flip(home.fs, home.path(-1), 80)

    assert (Severity.ERROR, Check.BATCH) in found(home.look(was_clean=True))


def test_a_marker_of_a_clean_stop_beside_an_unclean_log_is_an_error() -> None:
    assert (Severity.ERROR, Check.DIRECTORY) in found(Home().look(was_clean=True))


def test_rolled_segments_that_no_manifest_lists_continue_the_log() -> None:
    home = Home(background=Deferred(inline=False))
    assert len(read_manifest(home.fs, DIRECTORY).segments) == 1

    report = home.look()

    assert report.findings == ()
    assert (report.segments, report.log_end_offset) == (4, 10)


def test_what_recovery_and_the_cleaner_leave_is_explained() -> None:
    home = Home()
    for name in (
        "cut.4.0",
        "manifest.tmp",
        f"{3:020d}.v99.log.cleaned",
        f"{0:020d}.v0.log",
        "notes",
    ):
        home.fs.write_bytes(f"{DIRECTORY}/{name}", b"something")

    report = home.look()

    assert {severity for severity, _ in found(report)} == {Severity.NOTE}
    texts = {finding.path.rpartition("/")[2]: finding.text for finding in report.findings}
    assert "cut aside" in texts["cut.4.0"]
    assert "cut short" in texts["manifest.tmp"]
    assert "staged" in texts[f"{3:020d}.v99.log.cleaned"]
    assert "covered" in texts[f"{0:020d}.v0.log"]
    assert "not a name that Kompakt uses" in texts["notes"]


def test_records_that_contradict_their_batch_are_found_although_the_crc_is_right() -> None:
    home = Home()
    record = Record(offset=12, timestamp=1, key=b"k", value=b"v")
    shifted = build_batch([record], base_offset=10, leader_epoch=1)
    shifted[23:27] = (1).to_bytes(4)  # The record's delta is 2.
    shifted[17:21] = crc32c(bytes(shifted[21:])).to_bytes(4)
    home.fs.open(home.path(-1)).append((bytes(shifted),))

    report = home.look()

    assert (Severity.ERROR, Check.RECORDS) in found(report)


def test_keyless_records_in_a_cleaned_section_are_found() -> None:
    log = CompactedLog()
    for value in (b"1", b"2", b"3"):
        log.append((None, value))
    log.roll()
    manifest = replace(read_manifest(log.fs, COMPACTED), clean_offset=Offset(3))
    write_manifest(log.fs, COMPACTED, manifest)

    report = verify_log(log.fs, identity())

    # The last one below the clean offset may stay, for clients that read to the end.
    assert found(report) == [(Severity.WARNING, Check.KEYS)] * 2


def test_a_file_that_is_damaged_all_over_does_not_flood_the_report() -> None:
    home = Home()
    home.fs.write_bytes(home.path(1, OFFSET_INDEX), OFFSET_ENTRY.pack(1, 1) * 500)

    report = home.look()

    assert len(report.findings) == 21
    assert report.findings[-1].text.endswith("more like these")


def test_a_log_that_a_crash_left_half_created_is_a_note() -> None:
    fs = MemoryFileSystem()
    home = LogHome(fs)
    fs.make_directory(DIRECTORY)
    fs.write_bytes(f"{DIRECTORY}/{0:020d}.v1.log", b"")

    assert found(verify_log(fs, home.identity)) == [(Severity.NOTE, Check.FILES)]


def test_a_log_that_changes_under_the_look_is_looked_at_again() -> None:
    home = Home()
    removed = home.path(0)
    looks = 0

    def check(action: str, path: str, size: int = 0) -> None:
        """A swap comes between reading the manifest and reading the segment."""
        nonlocal looks
        if action == "open" and path == removed and looks == 0:
            looks += 1
            rows = read_manifest(home.fs, DIRECTORY).segments
            manifest = replace(
                read_manifest(home.fs, DIRECTORY), log_start_offset=Offset(3), segments=rows[1:]
            )
            write_manifest(home.fs, DIRECTORY, manifest)
            home.fs.unlink(removed)

    home.fs.faults.check = check  # type: ignore[method-assign]

    assert home.look().findings == ()
    assert looks == 1


def test_segments_that_are_kept_for_an_undo_are_explained() -> None:
    log = CompactedLog(replace(CONFIG, compaction_undo_ms=1000))
    log.append_segment((b"a", b"1"))
    log.append_segment((b"a", b"2"))
    log.clean()
    (kept,) = log.log.passes_kept

    found = verify_log(log.fs, identity(), was_clean=False)

    texts = [each.text for each in found.findings]
    kept_text = "kept: a cleaning pass has replaced it, and can be undone"
    assert texts.count(kept_text) == len(kept.sources)
    assert {each.severity for each in found.findings} == {Severity.NOTE}

    row = kept.sources[0]
    log.fs.unlink(f"{COMPACTED}/{row.base_offset:020}.v{row.file_version}.log")
    log.fs.replace_durably(f"{COMPACTED}/other", b"")
    (warning,) = (
        each
        for each in verify_log(log.fs, identity(), was_clean=False).findings
        if each.severity is Severity.WARNING
    )
    assert warning.text == f"it is missing or too short, so pass {kept.number} cannot be undone"

    log.fs.replace_durably(f"{COMPACTED}/{UNDO}", b"damage")
    texts = [each.text for each in verify_log(log.fs, identity(), was_clean=False).findings]
    assert any("no pass of the log can be undone" in text for text in texts)


def test_an_undo_file_that_no_longer_counts_is_a_note() -> None:
    log = CompactedLog(replace(CONFIG, compaction_undo_ms=1000))
    log.append_segment((b"a", b"1"))
    log.fs.replace_durably(f"{COMPACTED}/{UNDO}", b"left by a release before")

    (found,) = verify_log(log.fs, identity(), was_clean=False).findings

    assert (found.severity, found.text[:22]) == (Severity.NOTE, "it no longer counts: t")
