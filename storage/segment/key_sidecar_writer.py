"""Writes a key sidecar block by block; `storage/formats/key_sidecar.py` draws the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from storage.files.errors import MissingFile, StorageError
from storage.files.files import FileSystem, unlink_if_there
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.key_sidecar import HEAD, BlockSums, Head, header_of, sums_of, trailer_of
from storage.formats.key_totals import KeyTotals


class KeySidecarWriter:
    """Writes one sidecar, block by block. `finish`, `discard` or a failure ends it."""

    __slots__ = ("_file", "_fs", "_on_end", "_path", "_placed_as", "_sums")

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        base_offset: int,
        file_version: int,
        hash_key: bytes,
        strategy: CompactionStrategy = BY_OFFSET,
        keys_checked: bool = False,
        placed_as: str | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the sidecar of the segment with that base offset and version.

        Args:
            path: the file's name during the write; an existing file is replaced.
            strategy: how the topic ranks the records of a key: the blocks have versions, or have none.
            keys_checked: whether the header says so.
            placed_as: the name that `finish` gives the file; None leaves `path`.
            on_end: called when the writer has closed its file, unless the constructor raised.

        Raises:
            NoSpace, DiskError: the file cannot be created; nothing is left of it.
        """
        self._fs = fs
        self._path = path
        self._placed_as = placed_as
        self._on_end: Callable[[], None] = lambda: None
        self._sums = BlockSums()
        unlink_if_there(fs, path)
        self._file = fs.open(path, create=True)
        with self._discarding():
            header = header_of(
                base_offset, file_version, hash_key, strategy, keys_checked=keys_checked
            )
            self._file.append((header,))
        self._on_end = on_end

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def append(self, block: bytes | memoryview) -> None:
        """Write a finished block, checksum included.

        Raises:
            NoSpace, DiskError: the write failed; the file is removed.
        """
        self._sums = self._sums.plus(Head(*HEAD.unpack_from(block)))
        with self._discarding():
            self._file.append((block,))

    def finish(self, segment_size: int, totals: KeyTotals) -> None:
        """Write the trailer, which makes the sidecar complete.

        Raises:
            ValueError: the appended blocks do not add up to `totals` and the size.
            NoSpace, DiskError: like `append`.
        """
        with self._discarding():
            self._check(segment_size, totals)
            self._file.append((trailer_of(segment_size, totals),))
            if self._placed_as is not None:
                # A truncation removes staged files; then the segment is gone as well.
                with suppress(MissingFile):
                    self._fs.rename(self._path, self._placed_as)
        self._end()

    def discard(self) -> None:
        """Remove the unfinished file."""
        try:
            unlink_if_there(self._fs, self._path)
        finally:
            self._end()

    def _check(self, segment_size: int, totals: KeyTotals) -> None:
        expected = sums_of(segment_size, totals)
        if self._sums != expected:
            raise ValueError(f"{self._path}: its blocks hold {self._sums}, expected {expected}")

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Remove the file if the body fails."""
        try:
            yield
        except (StorageError, ValueError):
            with suppress(StorageError):
                self.discard()
            raise

    def _end(self) -> None:
        self._file.close()
        on_end, self._on_end = self._on_end, lambda: None
        on_end()
