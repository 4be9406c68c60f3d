"""A segment that the cleaner is writing: its files end in `.cleaned` until a swap takes them.

The data comes as the kernel made it, with its index entries. The disk writes it while the pass goes
on, a few MiB behind it: so the pass does not wait for the disk, the final sync is short, and other
writers' syncs are not held up behind much of it. The key sidecar is written beside it, if the pass
wants one, and is not synced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from storage.files import Buffer, File, FileSystem, unlink_if_there
from storage.key_sidecar_writer import KeySidecarWriter
from storage.key_totals import KeyTotals
from storage.manifest import FLAG_CLEANED, SegmentRow
from storage.paths import KEYS, LOG, OFFSET_INDEX, SEGMENT_KINDS, TIME_INDEX, join, segment_file
from storage.segment_index import SegmentIndex

WRITE_BACK_BYTES = 1 << 20
"""So much output at a time is given to the disk (architecture.md, budgets)."""
WRITE_BACK_BEHIND_BYTES = 4 << 20
"""As much may be on its way to the disk: more makes a pass no faster and other syncs slower."""


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """A finished, synced segment that no manifest lists yet."""

    row: SegmentRow
    directory: str
    fs: FileSystem

    def read_at(self, position: int, size: int) -> bytes:
        """At most `size` bytes of its staged file; fewer only at its end. Raises DiskError."""
        file = self.fs.open(self.staged_path(LOG))
        try:
            return file.read_at(position, size)
        finally:
            file.close()

    def staged_path(self, kind: str) -> str:
        """Where one of its files is until the swap."""
        return _staged(self.directory, self.row.base_offset, self.row.file_version, kind)

    def final_path(self, kind: str) -> str:
        """Where it is afterwards."""
        name = segment_file(self.row.base_offset, self.row.file_version, kind)
        return join(self.directory, name)


class CleanedSegmentWriter:
    """Writes one cleaned segment. Owned by one pass; `finish` or `discard` ends it."""

    __slots__ = (
        "_directory",
        "_file",
        "_fs",
        "_given_bytes",
        "_hash_key",
        "_index",
        "_keys",
        "base_offset",
        "version",
    )

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, version: int, hash_key: bytes
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._hash_key = hash_key
        self._directory = directory
        self.base_offset = base_offset
        self.version = version
        # State
        path = _staged(directory, base_offset, version, LOG)
        self._file: File = fs.open(path, create=True)
        self._index = SegmentIndex()
        self._given_bytes = 0
        """How much of it the disk was told to write."""
        self._keys: KeySidecarWriter | None = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def append(self, data: Buffer, index_entries: memoryview) -> None:
        """Write whole batches and note their index entries (four native int64s each)."""
        self._file.append((data,))
        self._index.add_quadruples(index_entries, self.base_offset)
        while self._file.size - self._given_bytes >= WRITE_BACK_BYTES:
            self._write_back()

    def _write_back(self) -> None:
        """Give the disk the next MiB, and wait for one that it has got before."""
        self._file.begin_write_back(self._given_bytes, WRITE_BACK_BYTES)
        self._given_bytes += WRITE_BACK_BYTES
        oldest = self._given_bytes - WRITE_BACK_BEHIND_BYTES - WRITE_BACK_BYTES
        if oldest >= 0:
            self._file.end_write_back(oldest, WRITE_BACK_BYTES)

    def append_keys(self, block: bytes) -> None:
        """Write the key sidecar's block of the batches that were appended since the last one.

        Raises:
            NoSpace, DiskError: as `append`.
        """
        self._sidecar().append(block)

    def finish(self, row: SegmentRow, totals: KeyTotals | None = None) -> CleanedSegment:
        """Sync everything. `row` says what the segment holds; name, size and flag are set here.

        Args:
            totals: of the key sidecar; None: the segment gets none.

        Raises:
            ValueError: the sidecar's blocks do not sum up to `totals` and the segment's size.
            NoSpace, DiskError: the files are the caller's to discard.
        """
        self._fs.write_bytes(self._path(OFFSET_INDEX), self._index.offset_file())
        self._fs.write_bytes(self._path(TIME_INDEX), self._index.time_file())
        if totals is not None:
            self._sidecar().finish(self.size, totals)
        elif self._keys is not None:
            self._keys.discard()
        self._file.sync()
        size = self._file.size
        self._file.close()
        named = replace(
            row,
            base_offset=self.base_offset,
            file_version=self.version,
            size=size,
            flags=row.flags | FLAG_CLEANED,
        )
        return CleanedSegment(named, self._directory, self._fs)

    def discard(self) -> None:
        """Remove what was written."""
        self._file.close()
        if self._keys is not None:
            self._keys.discard()
        discard_staged(self._fs, self._directory, self.base_offset, self.version)

    def _sidecar(self) -> KeySidecarWriter:
        if self._keys is None:
            self._keys = KeySidecarWriter(
                self._fs,
                self._path(KEYS),
                base_offset=self.base_offset,
                file_version=self.version,
                hash_key=self._hash_key,
            )
        return self._keys

    def _path(self, kind: str) -> str:
        return _staged(self._directory, self.base_offset, self.version, kind)


def discard_staged(fs: FileSystem, directory: str, base_offset: int, version: int) -> None:
    """Remove the staged files of a cleaned segment that no swap took."""
    for kind in SEGMENT_KINDS:
        unlink_if_there(fs, _staged(directory, base_offset, version, kind))


def _staged(directory: str, base_offset: int, version: int, kind: str) -> str:
    return join(directory, segment_file(base_offset, version, kind, cleaned=True))
