"""A key sidecar with wrong content is an error; a damaged one is only noted, because it is rebuilt."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from cleaner.inspect.verify_sidecars import verify_sidecars
from protocol.records.control_record import ControlType
from protocol.records.record_batch import Codec
from protocol.wire.numbers import Offset
from storage.files.paths import KEYS, LOG
from storage.formats.key_sidecar import sealed
from storage.log.cleaning_view import CleanableSegment
from storage.verify.findings import Check, Finding, Severity
from tests.harness.key_blocks import index
from tests.harness.log_builder import batch_of, marker_of, valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem

HASH_KEY = bytes(range(16))


class Machine:
    """A log of two sealed segments with sidecars and all kinds of batches."""

    def __init__(self) -> None:
        self.disk = MemoryFileSystem()
        home = LogHome(self.disk)
        home.config = replace(home.config, segment_bytes=1 << 20)
        self.identity = home.identity = replace(home.identity, hash_key=HASH_KEY)
        self.log = home.create()
        for number in range(2):
            self.append(batch_of([(b"a", b"1"), (None, b"2"), (b"b", None)], codec=Codec.ZSTD))
            self.append(
                batch_of(
                    [(b"c", bytes(50))],
                    producer_id=5,
                    producer_epoch=0,
                    base_sequence=number,
                    is_transactional=True,
                )
            )
            self.append(marker_of((ControlType.COMMIT, ControlType.ABORT)[number], 5))
            self.log.roll(0)
        self.segments: tuple[CleanableSegment, ...] = self.log.cleaning_view().segments
        for segment in self.segments:
            index(segment, HASH_KEY)

    def append(self, batch: bytearray) -> None:
        self.log.appender.append_as_leader(valid(batch), now_ms=0)

    def path(self, number: int, kind: str = KEYS) -> str:
        return self.segments[number].segment.path(kind)

    def findings(self, *, hash_key: bytes = HASH_KEY) -> tuple[Finding, ...]:
        return verify_sidecars(self.disk, replace(self.identity, hash_key=hash_key))

    def lie(self, at: int, data: bytes) -> None:
        """Change byte `at` of the first sidecar's first block, and its checksum."""
        path = self.path(0)
        content = bytearray(self.disk.read_bytes(path))
        rows = sum(struct.unpack_from(">4xII", content, 48))
        end = 48 + 16 + 24 * rows
        content[48 + at : 48 + at + len(data)] = data
        content[48 : end + 8] = sealed(bytes(content[48:end]))
        self.disk.write_bytes(path, bytes(content))


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_sound_sidecars_have_nothing_to_say(machine: Machine) -> None:
    seen: list[int] = []
    assert verify_sidecars(machine.disk, machine.identity, progress=seen.append) == ()
    assert sum(seen) == sum(segment.row.size for segment in machine.segments)
    assert machine.findings(hash_key=b"") == ()


def test_a_log_without_sidecars_is_not_read(machine: Machine) -> None:
    for segment in machine.segments:
        segment.drop_key_sidecar()
    seen: list[int] = []
    assert verify_sidecars(machine.disk, machine.identity, progress=seen.append) == ()
    assert seen == []


@pytest.mark.parametrize("position", [0, 30, 60, 200, -1])
def test_a_damaged_sidecar_is_noted(machine: Machine, position: int) -> None:
    path = machine.path(1)
    position %= machine.disk.size(path)
    byte = machine.disk.read_bytes(path)[position]
    machine.disk.overwrite(path, position, bytes([byte ^ 1]))
    (finding,) = machine.findings()
    assert (finding.severity, finding.check, finding.path) == (
        Severity.NOTE,
        Check.SIDECAR,
        path,
    )
    assert "will rebuild it" in finding.text


def test_a_sidecar_of_another_segment_is_noted(machine: Machine) -> None:
    machine.disk.write_bytes(machine.path(0), machine.disk.read_bytes(machine.path(1)))
    (finding,) = machine.findings()
    assert finding.severity is Severity.NOTE
    assert "it belongs to segment" in finding.text


def test_a_sidecar_under_another_hash_key_is_noted_where_the_key_is_known(
    machine: Machine,
) -> None:
    index(machine.segments[0], bytes(16))
    (finding,) = machine.findings()
    assert finding.severity is Severity.NOTE
    assert "another hash key" in finding.text
    assert machine.findings(hash_key=b"") == ()


ENTRIES = 16 + 24
"""The position of the entries in a first block with one special row."""


@pytest.mark.parametrize(
    ("at", "data", "needs_hash_key"),
    [
        pytest.param(ENTRIES, bytes(16), True, id="another_key"),
        pytest.param(ENTRIES + 16, b"\x80", False, id="a_tombstone_that_is_none"),
        pytest.param(ENTRIES + 19, b"\1", False, id="another_offset"),
        pytest.param(ENTRIES + 23, b"\0", False, id="another_size"),
        pytest.param(16 + 18, b"\2", False, id="a_commit_that_is_none"),
        pytest.param(12, bytes(4), False, id="no_unkeyed_records"),
        pytest.param(0, b"\0\0\0\1", False, id="another_end_of_its_batches"),
    ],
)
def test_a_sound_sidecar_that_says_what_is_not_so_is_an_error(
    machine: Machine, at: int, data: bytes, needs_hash_key: bool
) -> None:
    machine.lie(at, data)
    (finding,) = machine.findings()
    assert (finding.severity, finding.check) == (Severity.ERROR, Check.SIDECAR)
    assert "does not match its segment from byte 0" in finding.text
    assert bool(machine.findings(hash_key=b"")) is not needs_hash_key


def test_totals_that_the_segment_does_not_have_are_an_error(machine: Machine) -> None:
    path = machine.path(0)
    content = machine.disk.read_bytes(path)
    trailer = bytearray(content[-88:-8])
    trailer[16 + 6 * 8 + 7] += 1  # batches
    machine.disk.write_bytes(path, content[:-88] + sealed(bytes(trailer)))
    (finding,) = machine.findings()
    assert finding.severity is Severity.ERROR
    assert "its totals are" in finding.text


def test_a_damaged_segment_is_left_to_those_who_look_at_batches(machine: Machine) -> None:
    machine.disk.overwrite(machine.path(0, LOG), 70, b"?")
    assert machine.findings() == ()


def test_what_is_gone_meanwhile_has_nothing_to_say(machine: Machine) -> None:
    machine.disk.unlink(machine.path(0, LOG))
    assert machine.findings() == ()


def test_a_log_that_is_truncated_meanwhile_has_no_sidecar_that_lies(machine: Machine) -> None:
    """A broker may be using the directory."""
    machine.lie(ENTRIES, bytes(16))
    sizes: list[int] = []

    def truncate(size: int) -> None:
        if not sizes:
            machine.log.truncate_to(Offset(1))
        sizes.append(size)

    assert verify_sidecars(machine.disk, machine.identity, progress=truncate) == ()
    assert sizes
