"""A segment in a rehearsal: key sidecars are made and dropped only in scratch files, not on disk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from storage.files.errors import DamagedSidecar, MissingFile
from storage.files.files import FileSystem, unlink_if_there
from storage.files.paths import KEYS, join, segment_file
from storage.files.scratch_files import ScratchFileSystem
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.key_sidecar import KeySidecar
from storage.log.cleaning_view import CleanableSegment, CleaningView
from storage.log.log import PartitionLog
from storage.segment.key_sidecar_writer import KeySidecarWriter


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The key sidecars of one rehearsal."""

    scratch: FileSystem
    """Holds the sidecars that the rehearsal made."""
    dropped: set[int] = field(default_factory=set)
    """The base offsets of the segments whose sidecars on disk it ignores from now on."""


@dataclass(frozen=True, slots=True)
class RehearsedSegment(CleanableSegment):
    """A segment that shows the rehearsal the sidecar that a pass would have at this point."""

    rehearsal: Rehearsal

    def key_sidecar(
        self, hash_key: bytes, strategy: CompactionStrategy = BY_OFFSET
    ) -> KeySidecar | None:
        """Returns the usable sidecar, if any; ignores a damaged one, which a pass would remove.

        Raises:
            NoSpace: see `KeySidecar.open`.
        """
        path = self.segment.path(KEYS)
        try:
            if self.row.base_offset not in self.rehearsal.dropped:
                return self.open_key_sidecar(hash_key, strategy)
            return KeySidecar.open(self.rehearsal.scratch, path, self.row, hash_key, strategy)
        except MissingFile:
            return None
        except DamagedSidecar:
            self.drop_key_sidecar()
            return None

    def new_key_sidecar(
        self, hash_key: bytes, strategy: CompactionStrategy = BY_OFFSET
    ) -> KeySidecarWriter:
        """Returns a writer of a sidecar among the scratch files. Raises NoSpace, DiskError."""
        self.drop_key_sidecar()
        return KeySidecarWriter(
            self.rehearsal.scratch,
            self.segment.path(KEYS),
            base_offset=self.row.base_offset,
            file_version=self.row.file_version,
            hash_key=hash_key,
            strategy=strategy,
        )

    def drop_key_sidecar(self) -> None:
        """Ignore the sidecar on disk from now on, and remove the scratch file."""
        self.rehearsal.dropped.add(self.row.base_offset)
        unlink_if_there(self.rehearsal.scratch, self.segment.path(KEYS))


def scratch_files(log: PartitionLog) -> ScratchFileSystem:
    """Returns scratch files on the log's disk; recovery removes what a crash leaves of them.

    The file has the name of the active segment's staged sidecar, so only one task per log may use it:
    the caller must have claimed the log.
    """
    active = log.segments[-1]
    name = segment_file(active.base_offset, active.file_version, KEYS, cleaned=True)
    return ScratchFileSystem(active.fs, join(log.directory, name))


def rehearsed_view(view: CleaningView, scratch: FileSystem) -> CleaningView:
    """Returns the view over rehearsed segments, whose sidecars on disk do not change."""
    rehearsal = Rehearsal(scratch)
    segments = tuple(RehearsedSegment(each.row, each.segment, rehearsal) for each in view.segments)
    return replace(view, segments=segments)
