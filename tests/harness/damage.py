"""Damages a log's files silently, like a failing disk, a bug or a manual change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from protocol.records.batch_header import read_header
from protocol.records.record_batch import build_batch, read_records
from storage.files.paths import LOG, MANIFEST, join
from storage.formats.manifest import Manifest, SegmentRow, decode, encode
from tests.harness.log_builder import PLENTY
from tests.harness.memory_fs import MemoryFileSystem


def log_files(fs: MemoryFileSystem, directory: str) -> list[str]:
    """Returns the paths of the log's segment files, in offset order."""
    return [join(directory, name) for name in fs.list(directory) if name.endswith(LOG)]


def read_manifest(fs: MemoryFileSystem, directory: str) -> Manifest:
    return decode(fs.read_bytes(join(directory, MANIFEST)), MANIFEST)


def write_manifest(fs: MemoryFileSystem, directory: str, manifest: Manifest) -> None:
    fs.write_bytes(join(directory, MANIFEST), encode(manifest))


def change_row(
    fs: MemoryFileSystem, directory: str, index: int, change: Callable[[SegmentRow], SegmentRow]
) -> None:
    """Change a segment's row in the manifest, and keep the checksum correct."""
    manifest = read_manifest(fs, directory)
    rows = list(manifest.segments)
    rows[index] = change(rows[index])
    write_manifest(fs, directory, replace(manifest, segments=tuple(rows)))


def flip(fs: MemoryFileSystem, path: str, position: int) -> None:
    """Flip one bit of a file; a negative position counts from the end."""
    data = fs.read_bytes(path)
    at = position % len(data)
    fs.overwrite(path, at, bytes([data[at] ^ 1]))


def restamp(fs: MemoryFileSystem, path: str, position: int, *, leader_epoch: int) -> None:
    """Give the batch at `position` another leader epoch, which its CRC does not cover."""
    fs.overwrite(path, position + 12, leader_epoch.to_bytes(4))


def rewrite_batch(fs: MemoryFileSystem, path: str, position: int, *, sequence: int) -> None:
    """Replace a producer's batch with one of the same size and another base sequence."""
    data = fs.read_bytes(path)
    header = read_header(data, position)
    batch = build_batch(
        read_records(data, position, decompressed_bytes_max=PLENTY),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=sequence,
    )
    assert len(batch) == header.size_bytes
    fs.overwrite(path, position, bytes(batch))
