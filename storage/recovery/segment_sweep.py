"""Brings a log's segment files in line with its manifest, before any of them is read.

A file that the manifest does not list goes if a listed segment covers it or if the cleaner was still
writing it. A segment that continues the last listed one stays: a crash came between a roll and its
commit. So does one that a pass has replaced and that is kept for its undo. But the key sidecars of the
last listed segment and of those after it go: these segments may lose bytes and grow again, to exactly
the size that an old sidecar names.
"""

from __future__ import annotations

from collections.abc import Collection

from storage.files.errors import CorruptLog
from storage.files.files import FileSystem
from storage.files.paths import KEYS, LOG, SegmentFile, join, parse_segment_file, segment_file
from storage.formats.manifest import UNKNOWN, Manifest, SegmentRow
from storage.recovery.cut_files import CutFiles


def segment_files(fs: FileSystem, directory: str) -> list[SegmentFile]:
    """Returns the segment files in a log's directory, older versions first."""
    files = [file for file in map(parse_segment_file, fs.list(directory)) if file is not None]
    return sorted(files, key=lambda file: file.version)


class SegmentSweep:
    """Compares the files of one log with its manifest and repairs the differences."""

    __slots__ = ("_cut_files", "_directory", "_fs", "_kept", "_listed", "_manifest")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        manifest: Manifest,
        cut_files: CutFiles,
        kept_names: Collection[tuple[int, int]] = (),
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._manifest = manifest
        self._cut_files = cut_files
        self._listed = set(map(_name_of, manifest.segments))
        self._kept = set(kept_names)

    def _files(self) -> list[SegmentFile]:
        return segment_files(self._fs, self._directory)

    def _is_listed(self, file: SegmentFile) -> bool:
        """Returns whether the file is a listed segment's. The active segment has no key sidecar."""
        name = _name_of(file)
        is_active = name == _name_of(self._manifest.segments[-1])
        return name in self._listed and not (is_active and file.kind == KEYS)

    def _stays(self, file: SegmentFile) -> bool:
        """Returns whether the file has its final name and is a segment's that is listed or kept."""
        return not file.is_cleaned and (self._is_listed(file) or _name_of(file) in self._kept)

    def is_in_order(self) -> bool:
        """Returns whether there is nothing to do: all files are listed or kept."""
        return self._manifest.truncate_to == UNKNOWN and all(map(self._stays, self._files()))

    def finish_renames(self) -> None:
        """Finish the renames of a committed swap, or of a key sidecar."""
        staged_files = [file for file in self._files() if file.is_cleaned and self._is_listed(file)]
        for file in staged_files:
            staged = segment_file(file.base_offset, file.version, file.kind, cleaned=True)
            final = segment_file(file.base_offset, file.version, file.kind)
            self._fs.rename(join(self._directory, staged), join(self._directory, final))
        if staged_files:
            self._fs.sync_directory(self._directory)

    def remove_leftovers(self) -> dict[int, SegmentFile]:
        """Remove dead files. Returns the unlisted segments that may continue the log, by base offset."""
        tail = self._manifest.segments[-1]
        candidates: dict[int, SegmentFile] = {}
        for file in self._files():
            if self._stays(file):
                continue
            continues = file.base_offset > tail.base_offset and not file.is_cleaned
            if not continues or self._manifest.truncate_to != UNKNOWN or self._is_empty(file):
                self._remove_if_covered(file)
            else:
                older = candidates.get(file.base_offset)
                candidates[file.base_offset] = file
                if older is not None:
                    self._cut_files.set_aside(older)
        return candidates

    def _is_empty(self, file: SegmentFile) -> bool:
        """Returns whether the file holds no batches. Removing it loses nothing: indexes are rebuilt."""
        name = segment_file(file.base_offset, file.version, file.kind, cleaned=file.is_cleaned)
        return file.kind != LOG or self._fs.size(join(self._directory, name)) == 0

    def _remove_if_covered(self, file: SegmentFile) -> None:
        """Remove a file that a swap or a truncation has made superfluous; leave unexplained files alone.

        The manifest is newer than a superfluous file and does not list it, so the file's batches are
        dead or are in a listed segment.
        """
        is_cut = self._manifest.truncate_to != UNKNOWN
        is_dead = file.is_cleaned or is_cut or file.version < self._manifest.version
        if is_dead or self._is_empty(file):
            name = segment_file(file.base_offset, file.version, file.kind, cleaned=file.is_cleaned)
            self._fs.unlink(join(self._directory, name))

    def check_listed(self) -> None:
        """Check the sizes of listed segments against the manifest, and finish a truncation if one began.

        Raises:
            CorruptLog, MissingFile: a segment is too short or missing.
        """
        *sealed, tail = self._manifest.segments
        sizes = [self._checked_size(row) for row in sealed]
        self._checked_size(tail)
        if self._manifest.truncate_to == UNKNOWN:
            return
        for row, size in zip(sealed, sizes, strict=True):
            if size > row.size:
                file = self._fs.open(self._log_path(row))
                file.truncate(row.size)
                file.sync()
                file.close()

    def _checked_size(self, row: SegmentRow) -> int:
        path = self._log_path(row)
        size = self._fs.size(path)
        if size < row.size:
            raise CorruptLog(path, size, f"the file ends there, but the manifest says {row.size}")
        return size

    def _log_path(self, row: SegmentRow) -> str:
        return join(self._directory, segment_file(row.base_offset, row.file_version, LOG))


def _name_of(each: SegmentFile | SegmentRow) -> tuple[int, int]:
    version = each.version if isinstance(each, SegmentFile) else each.file_version
    return each.base_offset, version
