"""The index of a backup: what is read back, and what is refused."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

import msgspec
import pytest

from storage.backup.backup_index import FORMAT, BackupIndex, decode, encode
from storage.files.errors import DamagedFile, FormatFromTheFuture
from tests.harness.backups import made
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.snapshot_world import SnapshotWorld

PATH = "/backup/backups/x.json"


@pytest.fixture(scope="module")
def index() -> BackupIndex:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    world.create_topic("orders")
    return made(world.fs, world.snapshot(), MemoryFileSystem()).index


def sealed(content: object) -> bytes:
    """An index file with a right checksum."""
    data = msgspec.json.encode(content)
    checksum = hashlib.sha256(data).hexdigest()
    return b'{"checksum":"%s","index":%s}' % (checksum.encode(), data)


def changed(index: BackupIndex, **fields: Any) -> bytes:
    return sealed(msgspec.to_builtins(index) | fields)


def test_what_is_written_is_read_back(index: BackupIndex) -> None:
    assert decode(encode(index), PATH) == index
    assert changed(index) == encode(index)
    assert {log.path for log in index.logs()} == {
        file.path.rpartition("/")[0] for file in index.files if "/" in file.place
    }


def test_a_flipped_bit_anywhere_is_found(index: BackupIndex) -> None:
    data = encode(index)
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 7
        with pytest.raises(DamagedFile):
            decode(bytes(damaged), PATH)


def test_a_later_format_is_refused_as_such(index: BackupIndex) -> None:
    with pytest.raises(FormatFromTheFuture):
        decode(sealed({"format": FORMAT + 1, "files": "elsewhere"}), PATH)


def test_a_field_of_a_later_release_is_skipped(index: BackupIndex) -> None:
    assert decode(changed(index, compressed=True), PATH) == index


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "A" * 22 + "/../x",
        "A" * 22 + "/..",
        "/etc/passwd",
        "A" * 22 + "/orders.x/0/..",
        "A" * 22 + "/orders.x/0/a/b",
        "A" * 22 + "/.clean-shutdown",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(index: BackupIndex, path: str) -> None:
    file = msgspec.to_builtins(index.files[0]) | {"path": path}
    with pytest.raises(DamagedFile):
        decode(changed(index, files=[file]), PATH)


def test_a_file_of_another_log_and_a_file_twice_are_refused(index: BackupIndex) -> None:
    first = msgspec.to_builtins(index.files[0])
    elsewhere = first | {"path": "D" * 22 + "/meta.properties"}

    with pytest.raises(DamagedFile, match="in none of its logs"):
        decode(changed(index, files=[elsewhere]), PATH)
    with pytest.raises(DamagedFile, match="twice"):
        decode(changed(index, files=[first, first]), PATH)
