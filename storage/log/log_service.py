"""Tracks whether a log is in service, and guards the work that runs beside its appends.

in service -> offline: its disk failed, its topic was deleted, it was closed      (no way back)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage.files.errors import DiskError, LogOffline, NoSpace, StorageError
from storage.segment.files import Background
from storage.threads import any_thread

_log = logging.getLogger("storage.log.log_service")


@any_thread
class LogService:
    """The service state of one log."""

    __slots__ = ("_background", "_is_retired", "_on_failure", "name", "offline_reason")

    def __init__(
        self, name: str, *, background: Background, on_failure: Callable[[StorageError], None]
    ) -> None:
        # Constant after construction
        self.name = name
        self._background = background
        self._on_failure = on_failure
        # State
        self._is_retired = False
        self.offline_reason: str | None = None

    def check_online(self) -> None:
        """Raise LogOffline unless the log is in service."""
        if self.offline_reason is not None:
            raise LogOffline(self.name, self.offline_reason)

    def go_offline(self, reason: str) -> None:
        """Take the log out of service until the next start. Nothing on disk changes."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def retire(self) -> None:
        """Take the log out of service: its topic is deleted, and its files may vanish at any moment."""
        self._is_retired = True
        self.go_offline("its topic was deleted")

    @property
    def is_retired(self) -> bool:
        """Whether the log is being deleted: then a missing file is no failure."""
        return self._is_retired

    def fail(self, error: StorageError) -> None:
        """Take the log's directory out of service, because the disk failed."""
        if not self._is_retired:
            self.go_offline(str(error))
            self._on_failure(error)

    @contextmanager
    def failing_with_the_disk(self, *harmless: type[StorageError]) -> Iterator[None]:
        """Take the log's directory out of service if the body raises a StorageError.

        Errors of the `harmless` kinds are raised like the others, but leave the directory in service.
        """
        try:
            yield
        except StorageError as error:
            if not isinstance(error, harmless):
                self.fail(error)
            raise

    def in_background(self, work: Callable[[], None]) -> None:
        """Run `work` soon in the background, unless the log goes out of service before."""
        self._background(self.guarded(work))

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """Returns a wrapper of `work` for a worker thread: it never raises a StorageError, and it does
        nothing once the log is out of service."""
        return lambda: self._guard(work, even_offline=False)

    def remove_in_background(self, work: Callable[[], None]) -> None:
        """Remove files soon, even if the log is closed: its last readers may release them later."""
        self._background(lambda: self._guard(work, even_offline=True))

    def _guard(self, work: Callable[[], None], *, even_offline: bool) -> None:
        """Run `work`. A failing disk takes the directory offline; a full one is only logged."""
        try:
            if even_offline or self.offline_reason is None:
                work()
        except NoSpace as error:
            _log.warning("%s: postponed until there is space: %s", self.name, error)
        except StorageError as error:
            self.fail(error)


@contextmanager
def too_late_for_space() -> Iterator[None]:
    """Make a full disk a failed one: after its commit, an operation cannot be tried again."""
    try:
        yield
    except NoSpace as error:
        raise DiskError(error.action, error.path, error.errno, "after the commit") from error
