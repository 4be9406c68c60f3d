"""A segment that the cleaner is writing: its files end in `.cleaned` until a swap takes them.

The data arrives as the cleaner's kernel made it, with its index entries. The disk writes it while the
pass runs, a few MiB behind, so the pass does not wait for the disk, the final sync is short, and the
syncs of other writers do not queue behind much data. The key sidecar is written beside it, if the pass
wants one, and is not synced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from protocol.wire.numbers import Offset
from storage.files.files import Buffer, File, FileSystem, unlink_if_there
from storage.files.paths import (
    KEYS,
    LOG,
    OFFSET_INDEX,
    SEGMENT_KINDS,
    TIME_INDEX,
    join,
    segment_file,
)
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.content_digest import ContentDigest
from storage.formats.key_sidecar import KeySidecar
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import FLAG_CLEANED, SegmentRow
from storage.formats.segment_index import SegmentIndex
from storage.segment.key_sidecar_writer import KeySidecarWriter

WRITE_BACK_BYTES = 1 << 20
"""The output is written back to the disk in pieces of this size (docs/design/decisions.md)."""
WRITE_BACK_BEHIND_BYTES = 4 << 20
"""The most that may be in write-back: more makes a pass no faster but other syncs slower."""


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """A finished, synced segment that no manifest lists yet."""

    row: SegmentRow
    directory: str
    fs: FileSystem
    digest: str = ""
    """The digest of its bytes, if it was computed while they were written."""

    def read_at(self, position: int, size: int) -> bytes:
        """Read at most `size` bytes of its staged file, fewer only at its end. Raises DiskError."""
        file = self.fs.open(self.staged_path(LOG))
        try:
            return file.read_at(position, size)
        finally:
            file.close()

    def staged_path(self, kind: str) -> str:
        """Returns the path of one of its files until the swap."""
        return _staged(self.directory, self.row.base_offset, self.row.file_version, kind)

    def key_sidecar(self) -> KeySidecar:
        """Open its staged key sidecar.

        Raises:
            MissingFile, DamagedSidecar, NoSpace: it cannot be read.
        """
        return KeySidecar.open_for_segment(self.fs, self.staged_path(KEYS), self.row)

    def final_path(self, kind: str) -> str:
        """Returns the path of one of its files after the swap."""
        name = segment_file(self.row.base_offset, self.row.file_version, kind)
        return join(self.directory, name)


class CleanedSegmentWriter:
    """Writes one cleaned segment. One pass owns it; `finish` or `discard` ends it."""

    __slots__ = (
        "_directory",
        "_file",
        "_fs",
        "_hash_key",
        "_index",
        "_keys",
        "_strategy",
        "_written_back_bytes",
        "base_offset",
        "digest",
        "version",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
        version: int,
        hash_key: bytes,
        strategy: CompactionStrategy = BY_OFFSET,
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._hash_key = hash_key
        self._strategy = strategy
        self._directory = directory
        self.base_offset = base_offset
        self.version = version
        # State
        path = _staged(directory, base_offset, version, LOG)
        self._file: File = fs.open(path, create=True)
        self._index = SegmentIndex()
        self._written_back_bytes = 0
        """The bytes of the file whose write-back has started."""
        self._keys: KeySidecarWriter | None = None
        self.digest: ContentDigest | None = None
        """Takes the bytes as they are written, if set before the first ones."""

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def append(self, data: Buffer, index_entries: memoryview) -> None:
        """Write whole batches and add their index entries (four native int64s each)."""
        self._file.append((data,))
        if self.digest is not None:
            self.digest.update(data)
        self._index.add_quadruples(index_entries, self.base_offset)
        while self._file.size - self._written_back_bytes >= WRITE_BACK_BYTES:
            self._write_back()

    def _write_back(self) -> None:
        """Start the write-back of the next MiB, and wait for the oldest one over the bound."""
        self._file.begin_write_back(self._written_back_bytes, WRITE_BACK_BYTES)
        self._written_back_bytes += WRITE_BACK_BYTES
        oldest = self._written_back_bytes - WRITE_BACK_BEHIND_BYTES - WRITE_BACK_BYTES
        if oldest >= 0:
            self._file.end_write_back(oldest, WRITE_BACK_BYTES)

    def append_keys(self, block: bytes, *, keys_checked: bool = False) -> None:
        """Write a key sidecar block for the batches appended since the last block.

        Args:
            keys_checked: whether the sidecar says that its keys were checked; the same for all blocks.

        Raises:
            NoSpace, DiskError: like `append`.
        """
        self._sidecar(keys_checked).append(block)

    def finish(self, row: SegmentRow, totals: KeyTotals | None = None) -> CleanedSegment:
        """Sync everything. `row` describes the contents; name, size and flag are set here.

        Args:
            totals: of the key sidecar; with None the segment gets no sidecar.

        Raises:
            ValueError: the sidecar's blocks do not add up to `totals` and the segment's size.
            NoSpace, DiskError: the caller discards the files.
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
        digest = "" if self.digest is None else str(self.digest)
        return CleanedSegment(named, self._directory, self._fs, digest)

    def discard(self) -> None:
        """Remove the unfinished files."""
        self._file.close()
        if self._keys is not None:
            self._keys.discard()
        discard_staged(self._fs, self._directory, self.base_offset, self.version)

    def _sidecar(self, keys_checked: bool = False) -> KeySidecarWriter:
        if self._keys is None:
            self._keys = KeySidecarWriter(
                self._fs,
                self._path(KEYS),
                base_offset=self.base_offset,
                file_version=self.version,
                hash_key=self._hash_key,
                strategy=self._strategy,
                keys_checked=keys_checked,
            )
        return self._keys

    def _path(self, kind: str) -> str:
        return _staged(self._directory, self.base_offset, self.version, kind)


def discard_staged(fs: FileSystem, directory: str, base_offset: int, version: int) -> None:
    """Remove the staged files of a cleaned segment that was not swapped in."""
    for kind in SEGMENT_KINDS:
        unlink_if_there(fs, _staged(directory, base_offset, version, kind))


def _staged(directory: str, base_offset: int, version: int, kind: str) -> str:
    return join(directory, segment_file(base_offset, version, kind, cleaned=True))
