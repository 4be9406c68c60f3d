"""A segment as an executor sees it: read by its path; a missing key sidecar is made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from storage.files.errors import DamagedSidecar, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import KEYS, join, segment_file
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.key_sidecar import KeySidecar
from storage.formats.manifest import SegmentRow
from storage.log.cleaning_view import CleanableSegment
from storage.segment.key_sidecar_writer import KeySidecarWriter
from storage.segment.segment import Segment


@dataclass(frozen=True, slots=True)
class RemoteSegment(CleanableSegment):
    """A segment that the broker owns: no file in its directory is made, changed or removed."""

    keys_folder: str | None
    """The folder of a sidecar made by an executor; None: use the broker's own."""
    keys_fs: FileSystem
    """The file system of that folder."""

    @property
    def keys_path(self) -> str:
        """The path of its sidecar."""
        if self.keys_folder is None:
            return self.segment.path(KEYS)
        row = self.row
        return join(self.keys_folder, segment_file(row.base_offset, row.file_version, KEYS))

    def key_sidecar(
        self, hash_key: bytes, strategy: CompactionStrategy = BY_OFFSET
    ) -> KeySidecar | None:
        """Returns the sidecar; None if it is missing or damaged. Raises NoSpace."""
        try:
            return KeySidecar.open(self.keys_fs, self.keys_path, self.row, hash_key, strategy)
        except (MissingFile, DamagedSidecar):
            return None

    def new_key_sidecar(
        self, hash_key: bytes, strategy: CompactionStrategy = BY_OFFSET
    ) -> KeySidecarWriter:
        """Returns a writer of a sidecar in `keys_folder`. Raises NoSpace, DiskError."""
        assert self.keys_folder is not None
        return KeySidecarWriter(
            self.keys_fs,
            self.keys_path,
            base_offset=self.row.base_offset,
            file_version=self.row.file_version,
            hash_key=hash_key,
            strategy=strategy,
        )

    def drop_key_sidecar(self) -> None:
        """Does nothing: the sidecar is the broker's, or another attempt reads it."""


def sealed_segment(fs: FileSystem, directory: str, row: SegmentRow) -> CleanableSegment:
    """Returns the segment of a row in a directory that the broker owns; its file is not opened yet."""
    return CleanableSegment(row, Segment(fs, directory, row, background=_forbid_background_work))


def _forbid_background_work(work: object) -> None:
    raise AssertionError("an executor must not remove or sync files of the broker")
