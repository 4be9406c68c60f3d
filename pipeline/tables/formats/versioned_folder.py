"""A folder whose contents are replaced in one atomic step.

```
<folder>/
    current -> v00000007          the symbolic link that readers open: <folder>/current
    v00000007/part-*.parquet      the data
    v00000007/_kompakt.json       the label: a description of the data
    v00000006/                    kept for readers that resolved the link before the switch
```
A version is complete before the link names it, so data and label switch together: an interrupted write
leaves the previous version. A reader that runs beside writers must resolve the link once. The folder
has one writer at a time, on a local file system.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

VERSIONS_KEPT = 2
LABEL = "_kompakt.json"


class VersionedFolder:
    """The folder at `path`; the object that publishes is its only writer."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def current(self) -> Path:
        """The path that readers open; it exists once a version has been published."""
        return self.path / "current"

    def label(self) -> str | None:
        """Returns the label of the current version; None before the first, or if it is not ours."""
        try:
            return (self.current / LABEL).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_vacant(self) -> bool:
        """Returns whether the folder is empty, except versions that no link has named."""
        names = [path.name for path in self.path.iterdir()] if self.path.is_dir() else []
        return all(name.startswith(("v0", ".current.")) for name in names)

    def publish(self, write: Callable[[Path], None], label: str) -> Path:
        """Let `write` fill the folder of the next version, then make it the current one."""
        version = self.next_version()
        write(version)
        self.switch_to(version, label)
        return version

    def next_version(self) -> Path:
        """Returns the folder of the next version, which does not exist yet."""
        return self.path / f"v{max(self._numbers(), default=0) + 1:08d}"

    def switch_to(self, version: Path, label: str) -> None:
        """Make a version with all its files the current one."""
        (version / LABEL).write_text(label)
        sync_tree(version)
        self._link(version)
        self._remove_all_but_newest()

    def _link(self, version: Path) -> None:
        link = self.path / ".current.next"
        link.unlink(missing_ok=True)
        link.symlink_to(version.name)
        link.replace(self.current)
        sync_file(self.path)

    def _remove_all_but_newest(self) -> None:
        for number in sorted(self._numbers())[:-VERSIONS_KEPT]:
            shutil.rmtree(self.path / f"v{number:08d}")

    def _numbers(self) -> list[int]:
        return [int(path.name[1:]) for path in self.path.glob("v????????") if path.is_dir()]


def sync_tree(folder: Path) -> None:
    """Sync the files of a version and their names, which must be on disk before the link."""
    for path in folder.iterdir():
        if path.is_dir():
            sync_tree(path)
        else:
            sync_file(path)
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Sync a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
