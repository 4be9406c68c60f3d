"""Writes the audit log to a file that rotates.

    <file>       the newest lines; at `audit.log.max.bytes` it becomes <file>.1
    <file>.1     older ones, up to <file>.<audit.log.backups>; the oldest is removed

A thread writes, so that a slow disk holds up no client. Lines that arrive while 10,000 wait are counted
and left out, and a line says how many. The file has mode 0600. If it cannot be written, the broker goes
on and says so once a minute.
"""

from __future__ import annotations

import logging
import os
import queue
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path

from server.security.audit_log import LOGGER
from storage.threads import any_thread

LINES_WAITING_MAX = 10_000
COMPLAINT_SECONDS = 60.0

_log = logging.getLogger("server.security.audit_file")


@contextmanager
def audit_file(path: Path, *, bytes_max: int, backups: int) -> Iterator[None]:
    """Write the lines of the audit log to `path` until the block ends; then write those that wait."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(LINES_WAITING_MAX)
    file = _RotatingFile(path, bytes_max=bytes_max, backups=backups)
    entrance = _BoundedEntrance(lines)
    writer = QueueListener(lines, file)
    logger = logging.getLogger(LOGGER)
    was_propagated, logger.propagate = logger.propagate, False
    logger.addHandler(entrance)
    writer.start()
    try:
        yield
    finally:
        logger.removeHandler(entrance)
        logger.propagate = was_propagated
        writer.stop()
        file.close()


@any_thread
class _BoundedEntrance(QueueHandler):
    """Hands lines to the writing thread, unless too many wait."""

    def __init__(self, lines: queue.Queue[logging.LogRecord]) -> None:
        super().__init__(lines)
        self._left_out = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._left_out:
                self.queue.put_nowait(_left_out_line(self._left_out))
                self._left_out = 0
            self.queue.put_nowait(record)
        except queue.Full:
            self._left_out += 1


class _RotatingFile(RotatingFileHandler):
    """A rotating file that only its owner can read."""

    def __init__(self, path: Path, *, bytes_max: int, backups: int) -> None:
        super().__init__(
            path, maxBytes=bytes_max, backupCount=backups, encoding="utf-8", delay=True
        )
        self.setFormatter(logging.Formatter("%(message)s"))
        self._complained_s = -COMPLAINT_SECONDS

    def _open(self):  # type: ignore[no-untyped-def]
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=_open_private)

    def handleError(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        if now_s - self._complained_s >= COMPLAINT_SECONDS:
            self._complained_s = now_s
            _log.warning("cannot write the audit log %s", self.baseFilename, exc_info=True)


def _open_private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR)
    os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR)
    return descriptor


def _left_out_line(count: int) -> logging.LogRecord:
    text = f'{{"event":"left out","lines":{count}}}'
    return logging.LogRecord(LOGGER, logging.INFO, __file__, 0, text, (), None)
