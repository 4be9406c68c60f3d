"""Whether a log was ever written to, judged by its files."""

from __future__ import annotations

import pytest

from storage.files.paths import LOG, TIME_INDEX, cut_file, segment_file
from storage.recovery.was_used import was_used
from tests.harness.memory_fs import MemoryFileSystem


@pytest.mark.parametrize(
    ("name", "data", "is_used"),
    [
        ("manifest", b"KMAN", False),
        (segment_file(0, 1, LOG), b"", False),
        (segment_file(0, 1, LOG), b"batch", True),
        (segment_file(0, 1, TIME_INDEX), b"entries", False),
        (segment_file(7, 2, LOG), b"", True),
        (segment_file(0, 3, LOG, cleaned=True), b"batch", True),
        (cut_file(0, 0), b"batch", True),
    ],
)
def test_a_log_was_used_if_a_file_has_records_or_a_segment_begins_later(
    name: str, data: bytes, is_used: bool
) -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/log")
    disk.write_bytes(f"/log/{name}", data)

    assert was_used(disk, "/log") is is_used
