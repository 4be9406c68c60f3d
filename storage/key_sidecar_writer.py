"""Writing a key sidecar, block by block, to a file that `storage/key_sidecar.py` draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from storage.errors import MissingFile, StorageError
from storage.files import FileSystem, unlink_if_there
from storage.key_sidecar import HEAD, BlockSums, Head, header_of, sums_of, trailer_of
from storage.key_totals import KeyTotals


class KeySidecarWriter:
    """Writes one sidecar, block by block; `finish` or `discard` ends it, and so does a failure."""

    __slots__ = ("_file", "_fs", "_on_end", "_path", "_placed_as", "_sums")

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        base_offset: int,
        file_version: int,
        hash_key: bytes,
        placed_as: str | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin the sidecar of the segment of that base offset and version.

        Args:
            path: its name while it is written; what has it is replaced.
            placed_as: the name that `finish` gives it; None: it keeps `path`.
            on_end: called when the writer, once it was made, is done with its file.

        Raises:
            NoSpace, DiskError: there is no file.
        """
        self._fs = fs
        self._path = path
        self._placed_as = placed_as
        self._on_end: Callable[[], None] = lambda: None
        self._sums = BlockSums()
        unlink_if_there(fs, path)
        self._file = fs.open(path, create=True)
        with self._discarding():
            self._file.append((header_of(base_offset, file_version, hash_key),))
        self._on_end = on_end

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def append(self, block: bytes | memoryview) -> None:
        """Write a finished block, checksum included.

        Raises:
            NoSpace, DiskError: nothing is left of the file.
        """
        self._sums = self._sums.plus(Head(*HEAD.unpack_from(block)))
        with self._discarding():
            self._file.append((block,))

    def finish(self, segment_size: int, totals: KeyTotals) -> None:
        """Write the trailer: from now on the sidecar is one.

        Raises:
            ValueError: the blocks that were appended do not sum up to `totals` and the size.
            NoSpace, DiskError: as `append`.
        """
        with self._discarding():
            self._check(segment_size, totals)
            self._file.append((trailer_of(segment_size, totals),))
            if self._placed_as is not None:
                # A truncation removes what is staged, and then there is nothing to speak for.
                with suppress(MissingFile):
                    self._fs.rename(self._path, self._placed_as)
        self._end()

    def discard(self) -> None:
        """Remove what was written."""
        try:
            unlink_if_there(self._fs, self._path)
        finally:
            self._end()

    def _check(self, segment_size: int, totals: KeyTotals) -> None:
        told = sums_of(segment_size, totals)
        if self._sums != told:
            raise ValueError(f"{self._path}: its blocks hold {self._sums}, and should {told}")

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Leave nothing of the file behind if this fails."""
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
