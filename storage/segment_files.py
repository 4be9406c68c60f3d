"""The files of one segment: their names, the descriptor of its batches, who uses it, and their end.

    closed <-> open        opened at the first use; closed when too many are (`storage/open_files.py`)
    retired -> removed     when the last pin goes
    let go  -> closed      when the last pin goes; its directory goes with the topic

Whoever reads, appends or syncs does so with the file that is open at that moment. It is closed under
nobody: not while it is pinned, and not while it holds bytes that no sync covers. Writes are counted when
they begin, when they are done, and when a sync covers them; a file is idle when all three agree.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from storage.begun_sync import BegunSync
from storage.errors import MissingFile, SegmentRemoved, StorageError, SyncFailed
from storage.files import Buffer, File, FileSystem, unlink_if_there
from storage.open_files import ACTIVE, SEALED
from storage.paths import LOG, SEGMENT_KINDS, join, segment_file

Background = Callable[[Callable[[], None]], None]
"""Runs a piece of work soon, on a thread that may wait for the disk."""

# Held for a few lines by the loop's thread, the cleaner's and workers; never while the disk works.
_guard = threading.Lock()


class SegmentFiles:
    """What one segment has on disk. Any thread; only one appends."""

    __slots__ = (
        "_base_offset",
        "_closings",
        "_directory",
        "_file",
        "_file_version",
        "_fs",
        "_is_retired",
        "_is_sync_ordered",
        "_keeps_names",
        "_pins",
        "_share",
        "_sync_failure",
        "_sync_lock",
        "_writes_begun",
        "_writes_done",
        "_writes_synced",
        "background",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        file_version: int,
        *,
        background: Background,
        is_settled: bool,
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._base_offset = base_offset
        self._file_version = file_version
        self.background = background
        """Where files are removed and synced; the log that takes the segment over sets its own."""
        # State, changed under `_guard`: synced <= done <= begun.
        self._file: File | None = None
        self._closings = 0
        self._share = SEALED if is_settled else ACTIVE
        self._pins = 0
        self._is_retired = False
        self._keeps_names = False
        self._is_sync_ordered = False
        self._sync_lock: threading.Lock | None = None
        self._sync_failure: SyncFailed | None = None
        self._writes_begun = 0
        self._writes_done = 0
        self._writes_synced = 0

    def path(self, kind: str) -> str:
        """Where one of the files is."""
        return join(self._directory, segment_file(self._base_offset, self._file_version, kind))

    # ---------------------------------------------------------------- opening and closing

    def create(self, *, reserved_bytes: int = 0) -> None:
        """Make the file of batches; its name is safe once the directory is synced.

        Args:
            reserved_bytes: disk space to set aside for it (preallocate).

        Raises:
            DiskError: there is no file.
        """
        self._install(self._fs.open(self.path(LOG), create=True), self._closings)
        if reserved_bytes:
            try:
                with self.pinned() as file:
                    file.reserve(reserved_bytes)
            except StorageError:
                with suppress(StorageError):
                    self.remove()
                raise

    @property
    def is_open(self) -> bool:
        """Whether `open` returns at once; for who holds a pin."""
        return self._file is not None

    def open(self) -> File:
        """The file of batches, opened at the first use; for who holds a pin.

        Raises:
            SegmentRemoved: it was truncated away before anybody opened it.
            DiskError: it cannot be opened.
        """
        while (file := self._file) is None:
            closings = self._closings
            self._install(self._reopened(), closings)
        return file

    def _reopened(self) -> File:
        try:
            return self._fs.open(self.path(LOG))
        except MissingFile:
            if self._is_retired:
                # A truncation does not wait for who has pinned it.
                raise SegmentRemoved(self.path(LOG)) from None
            raise

    def _install(self, file: File, closings: int) -> None:
        """Use `file`, which was opened after so many closings, unless another thread was faster."""
        with _guard:
            # A file that was opened before another was closed may not know its last appends.
            is_used = self._file is None and self._closings == closings
            if is_used:
                self._file = file
            overdue = self._share.add(self) if is_used else ()
            others = self._share.others(self) if overdue and self._share.is_exhausted else ()
        if not is_used:
            file.close()
        # One is closed before this returns, if there is one that nobody is syncing.
        any(each.sync_at_once() for each in others)
        for each in overdue:
            each.sync_soon()

    def share(self, *, is_settled: bool) -> None:
        """Count among the sealed files, or among those that may yet be appended to or synced."""
        with _guard:
            self._share.discard(self)
            self._share = SEALED if is_settled else ACTIVE
            if self._file is not None:
                self._share.add(self)

    def close(self) -> None:
        """Give the descriptor back, whoever uses it."""
        with _guard:
            self._share.discard(self)
            self._close()

    def close_if_idle(self) -> bool:
        """Close the file unless it is pinned or not synced; whether it is. Under the guard."""
        if self._pins or self._writes_begun != self._writes_synced:
            return False
        self._close()
        return True

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            self._closings += 1
            file.close()

    # ---------------------------------------------------------------- writing

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write the parts at the end; the position where they begin. Raises DiskError."""
        file = self._begin_write()
        try:
            return file.append(parts)
        finally:
            self._writes_done += 1

    def _begin_write(self) -> File:
        """The file, which nobody closes any more until what is now written is synced."""
        while True:
            file = self.open()
            with _guard:
                if self._file is file:
                    self._writes_begun += 1
                    return file

    def sync(self) -> None:
        """Make safe what was appended before.

        One thread at a time: the system tells of a failed write-back once, and whoever syncs the
        same file beside the one that was told would take the lost bytes for safe.

        Raises:
            SegmentRemoved: the segment was retired and nobody held it.
            SyncFailed: this sync or an earlier one of the file failed, which is final; the log's
                directory must go offline.
        """
        done = self._writes_done
        if done == self._writes_synced:
            return
        with self.pinned() as file, self._syncing():
            if self._sync_failure is not None:
                failed = self._sync_failure
                raise SyncFailed(failed.action, failed.path, failed.errno, "an earlier sync failed")
            try:
                file.sync()
            except SyncFailed as error:
                self._sync_failure = error
                raise
            self._writes_synced = max(self._writes_synced, done)

    def begin_sync(self) -> BegunSync | None:
        """Begin what `sync` does, for who carries the fdatasync out elsewhere; it waits for nobody.

        None if it takes `sync`: another thread is syncing the file, a sync of it has failed, or it
        has no descriptor that would do.

        Raises:
            SegmentRemoved: as `sync`.
            DiskError: the file cannot be opened.
        """
        self.pin()
        try:
            file = self.open()
        except StorageError:
            self.unpin()
            raise
        lock, done, descriptor = self._syncing(), self._writes_done, file.sync_descriptor()
        if descriptor is None or self._sync_failure is not None or not lock.acquire(blocking=False):
            self.unpin()
            return None

        def abandon() -> None:
            lock.release()
            self.unpin()

        def end(error: int) -> None:
            try:
                if error:
                    self._sync_failure = SyncFailed("sync", file.path, error, os.strerror(error))
                    raise self._sync_failure
                self._writes_synced = max(self._writes_synced, done)
            finally:
                abandon()

        return BegunSync(descriptor, end, abandon)

    def _syncing(self) -> threading.Lock:
        """What a sync holds; made at the first one, because most segments are never synced again."""
        with _guard:
            if self._sync_lock is None:
                self._sync_lock = threading.Lock()
            return self._sync_lock

    def sync_at_once(self) -> bool:
        """Sync and close the file now; False if that came to nothing.

        It waits for no other sync: one that was begun ends on the event loop, which may be waiting here.
        """
        if self._sync_failure is not None or self._syncing().locked():
            return False
        try:
            self._sync_and_close()
        except StorageError as error:
            # It is another log's caller who came upon it: this log has to be told.
            failure = error
            self.background(lambda: _raise(failure))
        return self._file is None

    def sync_soon(self) -> None:
        """Sync in the background, so that the file may be closed."""
        if self._sync_failure is not None:
            return
        with _guard:
            is_ordered, self._is_sync_ordered = self._is_sync_ordered, True
        if not is_ordered:
            self.background(self._sync_and_close)

    def _sync_and_close(self) -> None:
        self._is_sync_ordered = False
        try:
            self.sync()
        except SegmentRemoved:
            return
        with _guard:
            if self.close_if_idle():
                self._share.discard(self)

    # ---------------------------------------------------------------- users and the end

    def pin(self) -> None:
        """Keep the files until `unpin`.

        Raises:
            SegmentRemoved: the segment was retired and nobody held it.
        """
        with _guard:
            if self._is_retired and self._pins == 0:
                raise SegmentRemoved(self.path(LOG))
            self._pins += 1

    def unpin(self) -> None:
        """Let go; the last one to do so ends a retired segment's files."""
        with _guard:
            self._pins -= 1
            is_last = self._pins == 0 and self._is_retired
        if is_last:
            self.background(self._end)

    @contextmanager
    def pinned(self) -> Iterator[File]:
        """The open file, pinned meanwhile. Raises SegmentRemoved."""
        self.pin()
        try:
            yield self.open()
        finally:
            self.unpin()

    def retire(self) -> None:
        """Remove the files as soon as nobody uses them."""
        if self._retire():
            self.background(self.remove)

    def let_go(self) -> None:
        """Close the file as soon as nobody uses it: its topic is deleted.

        The names stay for whoever removes the directory; by then others may have taken them.
        """
        self._keeps_names = True
        if self._retire():
            self.close()

    def remove_at_once(self) -> None:
        """Remove the files' names now. Who reads goes on; the descriptor is kept for them."""
        is_unused = self._retire()
        self.unlink()
        if is_unused:
            self.close()

    def _retire(self) -> bool:
        with _guard:
            self._is_retired = True
            return self._pins == 0

    def _end(self) -> None:
        self.close()
        if not self._keeps_names:
            self.unlink()

    def remove(self) -> None:
        """Close, and remove what is there of the files."""
        self.close()
        self.unlink()

    def unlink(self, kinds: Sequence[str] = SEGMENT_KINDS) -> None:
        """Remove the files of these kinds that are there."""
        for kind in kinds:
            unlink_if_there(self._fs, self.path(kind))


def _raise(error: StorageError) -> None:
    raise error
