"""The audit log's file: private, rotated, bounded, written by a thread."""

from __future__ import annotations

import json
import logging
import queue
import stat
from pathlib import Path

import pytest

from server.security.audit_file import _BoundedEntrance, audit_file
from server.security.audit_log import LOGGER


@pytest.fixture(autouse=True)
def _level() -> object:
    logger = logging.getLogger(LOGGER)
    before = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(before)


def say(number: int) -> None:
    logging.getLogger(LOGGER).info("%s", json.dumps({"event": "changed", "number": number}))


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


def test_lines_are_in_the_file_when_the_block_ends_and_only_the_owner_reads_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"number": -1}\n')
    path.chmod(0o644)
    with audit_file(path, bytes_max=1 << 20, backups=1):
        for number in range(100):
            say(number)
    say(100)
    assert numbers(path) == list(range(-1, 100))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_full_files_move_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with audit_file(path, bytes_max=1024, backups=2):
        for number in range(200):
            say(number)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 1024 for file in files)
    kept = [number for file in reversed(files) for number in numbers(file)]
    assert kept == list(range(200 - len(kept), 200))
    assert len(kept) < 200


def test_a_file_that_cannot_be_written_costs_one_warning_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with audit_file(tmp_path / "missing" / "audit.log", bytes_max=1024, backups=2):
        for number in range(50):
            say(number)
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.message.split(str(tmp_path))[0] for each in warnings] == [
        "cannot write the audit log "
    ]


def test_lines_beyond_the_bound_are_counted_and_the_next_line_says_how_many() -> None:
    lines: queue.Queue[logging.LogRecord] = queue.Queue(2)
    entrance = _BoundedEntrance(lines)
    for number in range(5):
        entrance.enqueue(logging.LogRecord(LOGGER, logging.INFO, "", 0, str(number), (), None))
    assert [lines.get().getMessage() for _ in range(2)] == ["0", "1"]
    entrance.enqueue(logging.LogRecord(LOGGER, logging.INFO, "", 0, "5", (), None))
    assert [lines.get().getMessage() for _ in range(2)] == ['{"event":"left out","lines":3}', "5"]
