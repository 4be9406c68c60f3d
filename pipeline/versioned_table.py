"""A Parquet table that is replaced as a whole, in one atomic step.

```
<table>/
    current -> v00000007          the symbolic link that readers open: <table>/current
    v00000007/part-*.parquet      the rows
    v00000007/_progress.json      {"<partition>": <next offset>, ...} that the rows stand for
    v00000006/                    kept for readers that resolved the link before the switch
```
A version is complete before the link names it, and rows and progress switch together: whatever is
interrupted leaves the version before. A reader that overlaps with writers resolves the link once.
The folder has one writer at a time, on a local file system.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

Progress = Mapping[int, int]
"""Partition -> the offset after the last one that the rows take into account."""

VERSIONS_KEPT = 2


class VersionedTable:
    """The table at `path`; the object that publishes is its only writer."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def current(self) -> Path:
        """What readers open; it exists once a version has been published."""
        return self.path / "current"

    def progress(self) -> dict[int, int]:
        """What the current version takes into account; empty before the first."""
        if not self.current.exists():
            return {}
        rows = json.loads((self.current / "_progress.json").read_text())
        return {int(partition): next_offset for partition, next_offset in rows.items()}

    def publish(self, write: Callable[[Path], None], progress: Progress) -> Path:
        """Let `write` fill the folder of the next version, then make it the current one."""
        number = max(self._numbers(), default=0) + 1
        version = self.path / f"v{number:08d}"
        write(version)
        (version / "_progress.json").write_text(json.dumps(dict(progress), sort_keys=True))
        sync_tree(version)
        self._switch_to(version)
        self._remove_all_but_newest()
        return version

    def _switch_to(self, version: Path) -> None:
        link = self.path / ".current.next"
        link.unlink(missing_ok=True)
        link.symlink_to(version.name)
        link.replace(self.current)
        sync_folder(self.path)

    def _remove_all_but_newest(self) -> None:
        for number in sorted(self._numbers())[:-VERSIONS_KEPT]:
            shutil.rmtree(self.path / f"v{number:08d}")

    def _numbers(self) -> list[int]:
        return [int(path.name[1:]) for path in self.path.glob("v????????") if path.is_dir()]


def sync_tree(folder: Path) -> None:
    """The files of a version and their names are on disk before the link is."""
    for path in folder.iterdir():
        sync_folder(path)
    sync_folder(folder)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
