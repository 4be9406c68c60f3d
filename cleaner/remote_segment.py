"""A segment as an executor meets it: read by its path, its key sidecar made elsewhere if need be."""

from __future__ import annotations

from dataclasses import dataclass

from storage.cleaning_view import CleanableSegment
from storage.errors import DamagedSidecar, MissingFile
from storage.files import FileSystem
from storage.key_sidecar import KeySidecar
from storage.key_sidecar_writer import KeySidecarWriter
from storage.manifest import SegmentRow
from storage.paths import KEYS, join, segment_file
from storage.segment import Segment


@dataclass(frozen=True, slots=True)
class RemoteSegment(CleanableSegment):
    """A segment that the broker owns: nothing beside it is made, changed or removed."""

    keys_folder: str | None
    """Where a sidecar of it was made, or is to be; None: the broker's own counts."""
    keys_fs: FileSystem
    """What that folder is read and written by."""

    @property
    def keys_path(self) -> str:
        """Where its sidecar is."""
        if self.keys_folder is None:
            return self.segment.path(KEYS)
        row = self.row
        return join(self.keys_folder, segment_file(row.base_offset, row.file_version, KEYS))

    def key_sidecar(self, hash_key: bytes) -> KeySidecar | None:
        """The sidecar; None if there is none, or none that is any good. Raises NoSpace."""
        try:
            return KeySidecar.open(self.keys_fs, self.keys_path, self.row, hash_key)
        except (MissingFile, DamagedSidecar):
            return None

    def new_key_sidecar(self, hash_key: bytes) -> KeySidecarWriter:
        """Begin one in the folder. Raises NoSpace, DiskError."""
        assert self.keys_folder is not None
        return KeySidecarWriter(
            self.keys_fs,
            self.keys_path,
            base_offset=self.row.base_offset,
            file_version=self.row.file_version,
            hash_key=hash_key,
        )

    def drop_key_sidecar(self) -> None:
        """Nothing: it is the broker's, or another attempt reads it."""


def sealed_segment(fs: FileSystem, directory: str, row: SegmentRow) -> CleanableSegment:
    """The segment of a row in a log's directory, of which the broker is the owner; not opened yet."""
    return CleanableSegment(row, Segment(fs, directory, row, background=_at_once))


def _at_once(work: object) -> None:
    raise AssertionError("nothing of the broker's is removed or synced here")
