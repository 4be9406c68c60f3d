from __future__ import annotations

import dataclasses
from random import Random

import pytest

from protocol.records.batch_header import read_header
from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import (
    CorruptLog,
    DamagedFile,
    FormatFromTheFuture,
    LogOffline,
    MissingFile,
)
from storage.files.paths import LOG, OFFSET_INDEX, SEGMENT_KINDS
from storage.formats.manifest import CHECKSUM, decode, encode
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.state.leader_epochs import decode_leader_epochs
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

DIRECTORY = "/data/orders/0"
MANIFEST = f"{DIRECTORY}/manifest"


class Machine:
    """A log on a disk that tests damage or cut from power."""

    def __init__(self, *, background: Deferred | None = None) -> None:
        self.disk = MemoryFileSystem()
        self.home = LogHome(self.disk, background=background)
        self.log = self.home.create()

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            batch = batch_of([(b"key", bytes(40))])
            assert isinstance(self.log.appender.append_as_leader(valid(batch), now_ms=0), Appended)

    def append_segments(self, count: int) -> None:
        for _ in range(count):
            self.append(3)
            self.log.roll(0)

    def sync(self) -> None:
        self.log.advance_high_watermark(self.log.sync())

    def crash(self, loss: Loss = Loss.EVERYTHING) -> PartitionLog:
        self.disk = self.home.fs = self.disk.after_crash(loss, Random(0))
        self.log = self.home.open()
        return self.log

    def offsets(self) -> list[int]:
        return [record.offset for record in read_all(self.log)]

    def names(self, kind: str) -> list[str]:
        return [name for name in self.disk.list(DIRECTORY) if name.endswith(kind)]

    def files(self) -> dict[str, bytes]:
        return {
            name: self.disk.read_bytes(f"{DIRECTORY}/{name}") for name in self.disk.list(DIRECTORY)
        }


def test_clean_start_opens_nothing_but_the_manifest() -> None:
    machine = Machine()
    machine.append_segments(3)
    machine.append()
    machine.log.close()
    opened: list[str] = []
    original = machine.disk.faults.check

    def check(action: str, path: str, size: int = 0) -> None:
        opened.append(f"{action} {path}")
        original(action, path, size)

    machine.disk.faults.check = check  # type: ignore[method-assign]
    machine.log = machine.home.open(is_clean=True)

    assert opened == [f"read {MANIFEST}"]
    assert machine.offsets() == list(range(10))


def test_log_goes_on_after_a_clean_start_where_it_stopped() -> None:
    machine = Machine()
    machine.append(2)
    machine.log.close()
    machine.log = machine.home.open(is_clean=True)
    machine.append(2)
    machine.sync()
    assert machine.offsets() == [0, 1, 2, 3]
    machine.crash()
    assert machine.offsets() == [0, 1, 2, 3]


def test_segment_rolled_before_its_commit_is_adopted() -> None:
    machine = Machine(background=Deferred(inline=False))
    machine.append_segments(2)
    machine.append()
    machine.sync()
    assert len(decode(machine.disk.read_bytes(MANIFEST), "m").segments) == 1

    machine.home.background.waiting.clear()
    machine.crash()

    assert machine.offsets() == list(range(7))
    assert [segment.base_offset for segment in machine.log.segments] == [0, 3, 6]


def test_torn_tail_is_cut_and_kept_aside() -> None:
    machine = Machine()
    machine.append(3)
    machine.sync()
    (name,) = machine.names(LOG)
    path = f"{DIRECTORY}/{name}"
    third = machine.disk.size(path) * 2 // 3
    torn = machine.disk.read_bytes(path)[third:]
    machine.disk.overwrite(path, third + 70, b"\xff")

    machine.log = machine.home.open()

    assert machine.offsets() == [0, 1]
    kept = machine.disk.read_bytes(f"{DIRECTORY}/cut.2.0")
    assert len(kept) == len(torn)
    assert kept[:61] == torn[:61]
    machine.append()
    machine.sync()
    assert machine.offsets() == [0, 1, 2]


def test_segments_behind_a_cut_are_kept_aside_whole() -> None:
    machine = Machine(background=Deferred(inline=False))
    machine.append_segments(2)
    machine.sync()
    machine.disk.overwrite(f"{DIRECTORY}/{machine.names(LOG)[0]}", 75, b"\xff")

    machine.log = machine.home.open()

    assert machine.offsets() == []
    assert sorted(name for name in machine.files() if name.startswith("cut.")) == [
        "cut.0.0",
        "cut.3.0",
    ]


def test_damage_below_the_end_of_a_clean_stop_is_not_cut() -> None:
    machine = Machine()
    machine.append(3)
    machine.log.close()
    (name,) = machine.names(LOG)
    machine.disk.overwrite(f"{DIRECTORY}/{name}", 75, b"\xff")
    before = machine.files()[name]

    machine.log = machine.home.open()

    assert machine.log.log_end_offset == 3
    assert machine.files()[name] == before


@pytest.mark.parametrize("is_clean", [True, False])
def test_file_shorter_than_a_clean_stop_is_corruption_after_a_crash(is_clean: bool) -> None:
    machine = Machine()
    machine.append(3)
    machine.log.close()
    if is_clean:
        machine.log = machine.home.open(is_clean=True)
    machine.disk.open(f"{DIRECTORY}/{machine.names(LOG)[0]}").truncate(50)
    before = machine.files()

    with pytest.raises(CorruptLog) as caught:
        machine.home.open()

    assert caught.value.position == 50
    assert machine.files() == before


@pytest.mark.parametrize("missing", [True, False])
def test_listed_segment_that_is_gone_or_short_is_corruption(missing: bool) -> None:
    machine = Machine()
    machine.append_segments(3)
    path = f"{DIRECTORY}/{machine.names(LOG)[1]}"
    if missing:
        machine.disk.unlink(path)
    else:
        machine.disk.open(path).truncate(50)
    before = machine.files()
    with pytest.raises((CorruptLog, MissingFile)):
        machine.home.open()
    assert machine.files() == before


@pytest.mark.parametrize("damage", ["gone", "flipped", "short", "empty"])
def test_damaged_manifest_is_rebuilt_from_names_and_batches(damage: str) -> None:
    machine = Machine()
    machine.append_segments(3)
    machine.append()
    machine.sync()
    data = machine.disk.read_bytes(MANIFEST)
    if damage == "gone":
        machine.disk.unlink(MANIFEST)
    elif damage == "flipped":
        machine.disk.overwrite(MANIFEST, 90, b"\xaa")
    else:
        machine.disk.write_bytes(MANIFEST, data[:50] if damage == "short" else b"")

    machine.log = machine.home.open()

    assert machine.offsets() == list(range(10))
    assert [segment.base_offset for segment in machine.log.segments] == [0, 3, 6, 9]
    machine.append()
    machine.sync()
    machine.crash()
    assert machine.offsets() == list(range(11))


def test_rebuilt_manifest_prefers_what_the_cleaner_wrote_last() -> None:
    machine = Machine(background=Deferred(inline=False))
    machine.append_segments(3)
    machine.sync()
    view = machine.log.cleaning_view()
    sources = view.segments[:2]
    batches, _ = recopied(sources, lambda record: record.offset in (1, 5), ())
    cleaned = write_cleaned(machine.log, sources, batches, cut=2)
    machine.log.cleaning.swap(
        [each.row for each in sources], cleaned, generation=view.generation, clean_offset=None
    )
    assert len(machine.names(LOG)) == 5, "the sources are still there"
    machine.disk.unlink(MANIFEST)

    machine.log = machine.home.open()

    assert machine.offsets() == [1, 5, 6, 7, 8]


def test_rebuilding_without_a_segment_goes_offline_and_removes_nothing() -> None:
    machine = Machine()
    machine.append_segments(3)
    machine.disk.unlink(MANIFEST)
    machine.disk.unlink(f"{DIRECTORY}/{machine.names(LOG)[1]}")
    before = machine.files()
    with pytest.raises(LogOffline, match=r"offsets \[3, 6\) are missing"):
        machine.home.open()
    assert machine.files() == before


def test_manifest_of_a_later_release_is_refused_and_left_alone() -> None:
    machine = Machine()
    data = bytearray(machine.disk.read_bytes(MANIFEST)[: -CHECKSUM.size])
    data[5] = 9
    from xxhash import xxh3_64_intdigest

    machine.disk.write_bytes(MANIFEST, bytes(data) + CHECKSUM.pack(xxh3_64_intdigest(data)))
    before = machine.files()
    with pytest.raises(FormatFromTheFuture):
        machine.home.open()
    assert machine.files() == before


def test_manifest_of_another_topic_is_refused() -> None:
    machine = Machine()
    manifest = decode(machine.disk.read_bytes(MANIFEST), "m")
    import uuid

    other = dataclasses.replace(manifest, topic_id=uuid.UUID(int=99))
    machine.disk.write_bytes(MANIFEST, encode(other))
    with pytest.raises(DamagedFile, match="another topic"):
        machine.home.open()


@pytest.mark.parametrize("kind", [kind for kind in SEGMENT_KINDS if kind != LOG])
@pytest.mark.parametrize("data", [None, b"", b"\0" * 96, b"\xff" * 5])
def test_damaged_index_is_rebuilt_and_never_believed(kind: str, data: bytes | None) -> None:
    machine = Machine()
    machine.append_segments(2)
    machine.append(12)
    machine.log.close()
    for name in machine.names(kind):
        if data is None:
            machine.disk.unlink(f"{DIRECTORY}/{name}")
        else:
            machine.disk.write_bytes(f"{DIRECTORY}/{name}", data)
    machine.log = machine.home.open(is_clean=True)
    assert machine.offsets() == list(range(18))
    for offset in range(18):
        found = read_header(_first_bytes(machine.log, offset))
        assert found.base_offset == offset


def test_index_that_is_plausible_but_wrong_never_hides_a_record() -> None:
    """Entries that grow and lie inside the segment pass the check; only the batches reveal them."""
    machine = Machine()
    machine.append(12)
    machine.log.roll(0)
    machine.log.close()
    (name,) = machine.names(OFFSET_INDEX)[:1]
    size = machine.disk.size(f"{DIRECTORY}/{machine.names(LOG)[0]}")
    import struct

    lie = struct.pack(">iiii", 1, size // 2, 2, size - 5)
    machine.disk.write_bytes(f"{DIRECTORY}/{name}", lie)
    machine.log = machine.home.open(is_clean=True)
    assert machine.offsets() == list(range(12))


def _first_bytes(log: PartitionLog, offset: int) -> bytes:
    result = log.reader.read(offset, max_bytes=1, whole_first_batch=True, isolation=0)  # type: ignore[arg-type]
    assert not isinstance(result, int)
    data = result.regions[0].read_bytes()
    result.regions[0].release()
    return data


def test_recovered_log_is_the_same_when_recovered_again() -> None:
    machine = Machine(background=Deferred(inline=False))
    machine.append_segments(3)
    machine.append()
    machine.crash(Loss.NOTHING)
    first = (machine.offsets(), [segment.base_offset for segment in machine.log.segments])
    files = {name for name in machine.files() if name.endswith(LOG)}
    machine.crash()
    assert (machine.offsets(), [s.base_offset for s in machine.log.segments]) == first
    assert {name for name in machine.files() if name.endswith(LOG)} == files


def test_producers_and_epochs_survive_a_crash_after_many_rolls() -> None:
    machine = Machine()
    for sequence in range(9):
        batch = batch_of(
            [(b"k", bytes(80))], producer_id=4, producer_epoch=0, base_sequence=sequence
        )
        machine.log.appender.append_as_leader(valid(batch), now_ms=0)
    machine.sync()
    assert len(machine.log.segments) > 2
    machine.crash()
    again = batch_of([(b"k", bytes(80))], producer_id=4, producer_epoch=0, base_sequence=5)
    assert machine.log.appender.append_as_leader(valid(again), now_ms=0) == Appended(
        Offset(5), Offset(6), duplicate=True
    )
    assert machine.log.reader.end_offset_for_epoch(Epoch(1)) == (1, 9)


def test_lost_epoch_checkpoint_is_found_out_from_the_batches() -> None:
    machine = Machine()
    machine.append_segments(2)
    machine.log.close()
    machine.log = machine.home.open(is_clean=True, epoch=5)
    machine.append_segments(1)
    machine.log.close()
    machine.disk.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    machine.log = machine.home.open(is_clean=True, epoch=7)
    assert machine.log.epochs.entries == ((1, 0), (5, 6))


@pytest.mark.parametrize("lost_at", [2, 5])
def test_an_epoch_whose_records_are_lost_does_not_stay_in_the_checkpoint(lost_at: int) -> None:
    """The same epoch may begin again at another offset, and the checkpoint would say where it was."""
    machine = Machine()
    machine.append()
    machine.append()
    machine.sync()
    checkpoint = f"{DIRECTORY}/leader-epoch-checkpoint"
    machine.disk.write_bytes(checkpoint, b"0\n2\n1 0\n2 %d\n" % lost_at)

    machine.crash(Loss.NOTHING)

    assert decode_leader_epochs(machine.disk.read_bytes(checkpoint), "").entries[0] == (1, 0)
    assert b"2 %d\n" % lost_at not in machine.disk.read_bytes(checkpoint)
