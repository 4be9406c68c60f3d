"""A log whose files are held is read as it was when a broker has renamed or deleted them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import MissingFile
from storage.files.paths import KEYS, LOG, segment_file
from storage.formats.manifest import SegmentRow
from storage.segment.held_files import HeldFiles

ROW = SegmentRow(base_offset=Offset(7), file_version=3)


def path_of(folder: Path, kind: str, *, is_staged: bool = False) -> Path:
    return folder / segment_file(ROW.base_offset, ROW.file_version, kind, cleaned=is_staged)


def read(files: HeldFiles, path: Path) -> bytes:
    with closing(files.open(str(path))) as file:
        return file.read_at(0, 100)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_segment_and_its_sidecar_stay_readable_when_they_are_deleted(tmp_path: Path) -> None:
    for kind in (LOG, KEYS):
        path_of(tmp_path, kind).write_bytes(kind.encode())
    with HeldFiles() as files:
        files.hold(str(tmp_path), [ROW])
        for kind in (LOG, KEYS):
            path_of(tmp_path, kind).unlink()

        for kind in (LOG, KEYS):
            assert read(files, path_of(tmp_path, kind)) == kind.encode()


def test_a_file_that_is_renamed_after_it_was_held_is_found_by_both_names(tmp_path: Path) -> None:
    staged = path_of(tmp_path, LOG, is_staged=True)
    staged.write_bytes(b"data")
    with HeldFiles() as files:
        files.hold(str(tmp_path), [ROW])
        staged.rename(path_of(tmp_path, LOG))

        assert read(files, path_of(tmp_path, LOG)) == read(files, staged) == b"data"


def test_a_segment_without_a_sidecar_is_held_alone(tmp_path: Path) -> None:
    path_of(tmp_path, LOG).write_bytes(b"data")
    with HeldFiles() as files:
        files.hold(str(tmp_path), [ROW])
        with pytest.raises(MissingFile):
            files.open(str(path_of(tmp_path, KEYS)))


def test_a_segment_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with HeldFiles() as files, pytest.raises(MissingFile):
        files.hold(str(tmp_path), [ROW])


def test_all_files_are_closed_at_the_end(tmp_path: Path) -> None:
    path_of(tmp_path, LOG).write_bytes(b"data")
    before = descriptors()
    with HeldFiles() as files:
        files.hold(str(tmp_path), [ROW])
        assert descriptors() == before + 1
    assert descriptors() == before
