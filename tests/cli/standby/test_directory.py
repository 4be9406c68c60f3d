"""A standby's directory: whose it is, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.standby.directory import StandbyDirectory, open_directory
from storage.files.errors import (
    DamagedFile,
    DirectoryLocked,
    ForeignDirectory,
    FormatFromTheFuture,
)
from storage.files.local_files import LocalFileSystem
from storage.files.paths import STANDBY_PROPERTIES

FILES = LocalFileSystem()


def opened(path: Path) -> StandbyDirectory:
    return open_directory(FILES, str(path))


def test_it_keeps_its_id_and_the_cluster_that_it_joined(tmp_path: Path) -> None:
    first = opened(tmp_path / "copy")
    assert first.cluster_id is None
    first.join_cluster("ours")
    first.close()

    again = opened(tmp_path / "copy")

    assert (again.directory_id, again.cluster_id) == (first.directory_id, "ours")
    with pytest.raises(ForeignDirectory, match="follows cluster ours"):
        again.join_cluster("theirs")
    again.close()


def test_two_processes_do_not_share_it(tmp_path: Path) -> None:
    first = opened(tmp_path / "copy")
    with pytest.raises(DirectoryLocked):
        opened(tmp_path / "copy")
    first.close()
    opened(tmp_path / "copy").close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("meta.properties", "broker's data directory"),
        ("photo.jpg", "not empty"),
        ("metadata/1.replog", "has metadata"),
    ],
)
def test_directories_of_others_are_refused_and_stay_as_they_are(
    tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(ForeignDirectory, match=text):
        opened(tmp_path)

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", DamagedFile),
        (b"\xff", DamagedFile),
        (b"version=1\ndirectory.id=x\n", DamagedFile),
        (b"version=2\ndirectory.id=00\n", FormatFromTheFuture),
    ],
)
def test_an_identity_that_cannot_be_read_stops_the_start(
    tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    (tmp_path / STANDBY_PROPERTIES).write_bytes(content)
    with pytest.raises(error):
        opened(tmp_path)
