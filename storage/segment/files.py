"""The files of one segment: their names, the descriptor of the batch file, its users, and its removal.

    closed <-> open        opened at the first use; closed when too many are
    (`storage/files/open_files.py`)
    retired -> removed     when the last pin goes
    deleted -> closed      when the last pin goes; its directory goes with the topic

Readers, appends and syncs use the file that is open at that moment. The file is not closed while it is
pinned, nor while it holds unsynced bytes. Writes are counted when they begin, when they end, and when a
sync covers them; a file is idle when the three counts are equal.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from protocol.wire.numbers import Offset, Position
from storage.files.errors import MissingFile, SegmentRemoved, StorageError, SyncFailed
from storage.files.files import BegunSync, Buffer, File, FileSystem, unlink_if_there
from storage.files.open_files import ACTIVE, SEALED
from storage.files.paths import LOG, SEGMENT_KINDS, join, segment_file
from storage.threads import any_thread, loop_thread

Background = Callable[[Callable[[], None]], None]
"""Runs a function soon, on a thread that may wait for the disk."""

# Held for a few lines by the loop's thread, the cleaner's and workers; never during disk operations.
_guard = threading.Lock()


@any_thread
class SegmentFiles:
    """The files of one segment."""

    __slots__ = (
        "_base_offset",
        "_closings",
        "_directory",
        "_file",
        "_file_version",
        "_fs",
        "_is_retired",
        "_is_sync_scheduled",
        "_keeps_names",
        "_pins",
        "_share",
        "_sync_failure",
        "_sync_lock",
        "_writes_begun",
        "_writes_done",
        "_writes_synced",
        "background",
        "make",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
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
        """Runs removals and syncs; the log that takes the segment over sets its own."""
        self.make: Callable[[], None] | None = None
        """Creates the files of the log if it is new and has none; None if it certainly has."""
        # State, changed under `_guard`: synced <= done <= begun.
        self._file: File | None = None
        self._closings = 0
        self._share = SEALED if is_settled else ACTIVE
        self._pins = 0
        self._is_retired = False
        self._keeps_names = False
        self._is_sync_scheduled = False
        self._sync_lock: threading.Lock | None = None
        self._sync_failure: SyncFailed | None = None
        self._writes_begun = 0
        self._writes_done = 0
        self._writes_synced = 0

    def path(self, kind: str) -> str:
        """Returns the path of one of the files."""
        return join(self._directory, segment_file(self._base_offset, self._file_version, kind))

    # ---------------------------------------------------------------- opening and closing

    def create(self, *, reserved_bytes: int = 0) -> None:
        """Create the batch file. Its name is durable once the directory is synced.

        Args:
            reserved_bytes: disk space to allocate for it (preallocate).

        Raises:
            DiskError: the file could not be created; none is left.
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
        """Whether `open` returns at once. Only while pinned."""
        return self._file is not None

    def open(self) -> File:
        """Returns the batch file, opened at the first use. Only while pinned.

        Raises:
            SegmentRemoved: the segment was truncated away before the file was opened.
            DiskError: the file cannot be opened.
        """
        while (file := self._file) is None:
            closings = self._closings
            self._install(self._reopened(), closings)
        return file

    def _reopened(self) -> File:
        make = self.make
        if make is not None:
            make()
            self.make = None
        try:
            return self._fs.open(self.path(LOG))
        except MissingFile:
            if self._is_retired:
                # A truncation removes the file even if the segment is pinned.
                raise SegmentRemoved(self.path(LOG)) from None
            raise

    def _install(self, file: File, closings: int) -> None:
        """Use `file`, opened after `closings` closings, unless another thread was faster."""
        with _guard:
            # A file that was opened before another one was closed may not have its last appends.
            is_used = self._file is None and self._closings == closings
            if is_used:
                self._file = file
            overdue = self._share.add(self) if is_used else ()
            others = self._share.others(self) if overdue and self._share.is_exhausted else ()
        if not is_used:
            file.close()
        # Close one before returning, if there is one that no other thread is syncing.
        any(each.sync_at_once() for each in others)
        for each in overdue:
            each.sync_soon()

    def share(self, *, is_settled: bool) -> None:
        """Move to the share of sealed files, or to that of files with possible appends or syncs."""
        with _guard:
            self._share.discard(self)
            self._share = SEALED if is_settled else ACTIVE
            if self._file is not None:
                self._share.add(self)

    def close(self) -> None:
        """Close the descriptor, even if it is in use."""
        with _guard:
            self._share.discard(self)
            self._close()

    def close_if_idle(self) -> bool:
        """Close the file unless it is pinned or unsynced. Returns whether it is closed. Call under the
        guard."""
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

    @loop_thread
    def append(self, parts: Sequence[Buffer]) -> Position:
        """Write the parts at the end. Returns the position where they begin. Raises DiskError."""
        file = self._begin_write()
        try:
            return Position(file.append(parts))
        finally:
            self._writes_done += 1
            self._check_writes_in_order()

    def _check_writes_in_order(self) -> None:
        assert self._writes_synced <= self._writes_done <= self._writes_begun

    def _begin_write(self) -> File:
        """Returns the file, which stays open until the bytes of this write are synced."""
        while True:
            with _guard:
                if (file := self._file) is not None:
                    self._writes_begun += 1
                    return file
            self.open()

    def sync(self) -> None:
        """Make earlier appends durable.

        One thread at a time: the kernel reports a failed write-back only once, to one thread, and
        another thread that syncs the same file at that time would take the lost bytes for safe.

        Raises:
            SegmentRemoved: the segment was retired and not pinned.
            SyncFailed: this sync or an earlier one of the file failed, which is final; the log's
                directory must go offline.
        """
        done = self._writes_done
        if done == self._writes_synced:
            return
        with self.pinned() as file, self._lock_of_syncs():
            if self._sync_failure is not None:
                failed = self._sync_failure
                raise SyncFailed(failed.action, failed.path, failed.errno, "an earlier sync failed")
            try:
                file.sync()
            except SyncFailed as error:
                self._sync_failure = error
                raise
            self._writes_synced = max(self._writes_synced, done)
            self._check_writes_in_order()

    @loop_thread
    def begin_sync(self) -> BegunSync | None:
        """Start a sync whose fdatasync another thread performs. Never blocks.

        Returns None if it takes `sync`: another thread is syncing the file, a sync of it has failed,
        or it has no suitable descriptor.

        Raises:
            SegmentRemoved: like `sync`.
            DiskError: the file cannot be opened.
        """
        self.pin()
        try:
            file = self.open()
        except StorageError:
            self.unpin()
            raise
        lock, done, descriptor = self._lock_of_syncs(), self._writes_done, file.sync_descriptor()
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

    def _lock_of_syncs(self) -> threading.Lock:
        """Returns the lock that a sync holds, made on demand: most segments are never synced again."""
        with _guard:
            if self._sync_lock is None:
                self._sync_lock = threading.Lock()
            return self._sync_lock

    def sync_at_once(self) -> bool:
        """Sync and close the file now. Returns False if that was not possible.

        It waits for no other sync: a started one ends on the event loop, which may be waiting here.
        """
        if self._sync_failure is not None or self._lock_of_syncs().locked():
            return False
        try:
            self._sync_and_close()
        except StorageError as error:
            # The caller works for another log; the failure must reach this one.
            failure = error
            self.background(lambda: _raise(failure))
        return self._file is None

    def sync_soon(self) -> None:
        """Sync in the background, so that the file may be closed."""
        if self._sync_failure is not None:
            return
        with _guard:
            is_scheduled, self._is_sync_scheduled = self._is_sync_scheduled, True
        if not is_scheduled:
            self.background(self._sync_and_close)

    def _sync_and_close(self) -> None:
        self._is_sync_scheduled = False
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
            SegmentRemoved: the segment was retired and not pinned.
        """
        with _guard:
            if self._is_retired and self._pins == 0:
                raise SegmentRemoved(self.path(LOG))
            self._pins += 1

    def unpin(self) -> None:
        """Release a pin. The last `unpin` of a retired segment closes and removes its files."""
        with _guard:
            assert self._pins > 0, "each pin is released once"
            self._pins -= 1
            is_last = self._pins == 0 and self._is_retired
        if is_last:
            self.background(self._end)

    @contextmanager
    def pinned(self) -> Iterator[File]:
        """Yield the open file and keep it pinned meanwhile. Raises SegmentRemoved."""
        self.pin()
        try:
            yield self.open()
        finally:
            self.unpin()

    def retire(self) -> None:
        """Remove the files as soon as no one uses them."""
        if self._retire():
            self.background(self.remove)

    def close_when_unused(self) -> None:
        """Close the file as soon as no one uses it: its topic is deleted.

        The names stay until the directory is removed; at that time other files may have them.
        """
        self._keeps_names = True
        if self._retire():
            self.close()

    def remove_at_once(self) -> None:
        """Remove the files' names now. Readers continue with the descriptor, which stays open."""
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
        """Close the files and remove those that exist."""
        self.close()
        self.unlink()

    def unlink(self, kinds: Sequence[str] = SEGMENT_KINDS) -> None:
        """Remove the existing files of these kinds."""
        for kind in kinds:
            unlink_if_there(self._fs, self.path(kind))


def _raise(error: StorageError) -> None:
    raise error
