from __future__ import annotations

from pathlib import Path

import pytest

from storage import segment
from storage.files import LocalFileSystem
from storage.open_files import OpenFiles
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import LogHome, read_all


def open_descriptors(directory: Path) -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += str(link.readlink()).startswith(str(directory))
        except FileNotFoundError:
            continue
    return count


def test_log_of_many_segments_holds_a_bounded_number_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_open_files", OpenFiles(8))
    home = LogHome(LocalFileSystem(), directory=str(tmp_path / "log"))
    (tmp_path / "log").mkdir()
    log = home.create()
    for _ in range(60):
        log.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
        log.roll(0)
        assert open_descriptors(tmp_path) <= 10
    log.advance_high_watermark(log.sync())
    for _ in range(2):
        assert [record.offset for record in read_all(log)] == list(range(60))
        assert open_descriptors(tmp_path) <= 10
    log.close()
    assert open_descriptors(tmp_path) == 0
    log = home.open(is_clean=True)
    assert len(read_all(log)) == 60
    assert open_descriptors(tmp_path) <= 10
    log.close()


def test_active_segments_are_not_counted_and_cost_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenFiles(8)
    monkeypatch.setattr(segment, "_open_files", opened)
    logs = []
    for number in range(20):
        home = LogHome(LocalFileSystem(), directory=str(tmp_path / str(number)))
        (tmp_path / str(number)).mkdir()
        home.create().close()
        log = home.open(is_clean=True)
        log.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
        logs.append(log)
    assert len(opened) == 0
    assert open_descriptors(tmp_path) == 20
    for log in logs:
        log.close()
    assert open_descriptors(tmp_path) == 0


def test_pinned_file_is_not_closed_under_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_open_files", OpenFiles(2))
    home = LogHome(LocalFileSystem(), directory=str(tmp_path / "log"))
    (tmp_path / "log").mkdir()
    log = home.create()
    for _ in range(20):
        log.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
        log.roll(0)
    log.advance_high_watermark(log.sync())
    with log.segments[0].pinned() as file:
        before = file.read_at(0, 61)
        assert len(read_all(log)) == 20
        assert file.read_at(0, 61) == before
    log.close()
