"""A segment as a rehearsal meets it: its key sidecar is made and dropped, the disk stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from storage.cleaning_view import CleanableSegment, CleaningView
from storage.errors import DamagedSidecar, MissingFile
from storage.files import FileSystem, unlink_if_there
from storage.key_sidecar import KeySidecar
from storage.key_sidecar_writer import KeySidecarWriter
from storage.log import PartitionLog
from storage.paths import KEYS, join, segment_file
from storage.scratch_files import ScratchFileSystem


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What one rehearsal has done to key sidecars."""

    scratch: FileSystem
    """Where those are that it made."""
    dropped: set[int] = field(default_factory=set)
    """The base offsets of the segments whose own sidecars it looks at no more."""


@dataclass(frozen=True, slots=True)
class RehearsedSegment(CleanableSegment):
    """A segment whose sidecar, for the rehearsal, is what a pass would have made of it by now."""

    rehearsal: Rehearsal

    def key_sidecar(self, hash_key: bytes) -> KeySidecar | None:
        """As a pass sees it, which would have removed one that is no good. Raises NoSpace."""
        path = self.segment.path(KEYS)
        try:
            if self.row.base_offset not in self.rehearsal.dropped:
                return self.open_key_sidecar(hash_key)
            return KeySidecar.open(self.rehearsal.scratch, path, self.row, hash_key)
        except MissingFile:
            return None
        except DamagedSidecar:
            self.drop_key_sidecar()
            return None

    def new_key_sidecar(self, hash_key: bytes) -> KeySidecarWriter:
        """Begin one among the scratch files. Raises NoSpace, DiskError."""
        self.drop_key_sidecar()
        return KeySidecarWriter(
            self.rehearsal.scratch,
            self.segment.path(KEYS),
            base_offset=self.row.base_offset,
            file_version=self.row.file_version,
            hash_key=hash_key,
        )

    def drop_key_sidecar(self) -> None:
        """Look at it no more; a scratch file is removed."""
        self.rehearsal.dropped.add(self.row.base_offset)
        unlink_if_there(self.rehearsal.scratch, self.segment.path(KEYS))


def scratch_files(log: PartitionLog) -> ScratchFileSystem:
    """Beside the log, on its disk; what a crash leaves is swept as the active segment's sidecar.

    For who keeps others off the log: it has one name.
    """
    active = log.segments[-1]
    name = segment_file(active.base_offset, active.file_version, KEYS, cleaned=True)
    return ScratchFileSystem(active.fs, join(log.directory, name))


def rehearsed_view(view: CleaningView, scratch: FileSystem) -> CleaningView:
    """The view over segments whose sidecars stay as they are."""
    rehearsal = Rehearsal(scratch)
    segments = tuple(RehearsedSegment(each.row, each.segment, rehearsal) for each in view.segments)
    return replace(view, segments=segments)
