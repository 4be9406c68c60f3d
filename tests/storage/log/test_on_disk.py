"""Reading a log's directory without a lock: the view, its errors, and changes during the read.

tests/crash/test_log_on_disk_states.py compares it with recovery at every crash state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from storage.files.errors import DamagedFile, MissingFile
from storage.files.paths import ABORTED_TRANSACTIONS, MANIFEST, join
from storage.log.on_disk import LogOnDisk, look_at_log
from tests.harness.compacted_log import CONFIG, DIRECTORY, SETTINGS, CompactedLog, identity
from tests.harness.transactional_producer import TransactionalProducer


def log_of_segments(count: int) -> CompactedLog:
    log = CompactedLog(replace(CONFIG, segment_bytes=1 << 20), SETTINGS)
    for number in range(count):
        log.append_segment((b"key-%d" % number, b"value"), (b"all", b"%d" % number))
    return log


def seen(log: CompactedLog) -> LogOnDisk:
    found = look_at_log(log.fs, identity())
    assert found is not None
    return found


def names(found: LogOnDisk) -> list[tuple[int, int, int]]:
    return [(each.base_offset, each.file_version, each.end_offset) for each in found.segments]


def test_what_is_appended_and_not_synced_is_seen_up_to_a_batch_that_is_not_whole() -> None:
    log = log_of_segments(2)
    log.append((b"more", b"value"))
    assert (seen(log).end_offset, seen(log).last_stable_offset) == (5, 5)

    tail = log.log.segments[-1].path(".log")
    log.fs.open(tail).append([b"\0" * 40])

    assert seen(log).end_offset == 5
    assert seen(log).segments[-1].size == log.fs.size(tail) - 40


def test_open_and_aborted_transactions_are_seen() -> None:
    log = log_of_segments(1)
    first, second = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    began = first.send((b"a", b"v"))
    marker = first.abort()
    undecided = second.send((b"b", b"v"))
    log.append((b"c", b"v"))

    found = seen(log)

    assert found.aborted == ((1, began, marker),)
    assert found.last_stable_offset == undecided < found.end_offset


def test_a_directory_whose_log_was_never_finished_has_none() -> None:
    log = CompactedLog()
    log.fs.unlink(join(DIRECTORY, MANIFEST))

    assert look_at_log(log.fs, identity()) is None


def test_a_directory_whose_manifest_a_broker_has_not_written_yet_has_none() -> None:
    log = CompactedLog()
    emptied(log)

    assert look_at_log(log.fs, identity()) is None


def test_an_empty_manifest_beside_records_is_damaged() -> None:
    log = CompactedLog()
    log.append((b"a", b"v"))
    emptied(log)

    with pytest.raises(DamagedFile, match="only 0 bytes long"):
        look_at_log(log.fs, identity())


def emptied(log: CompactedLog) -> None:
    log.fs.unlink(join(DIRECTORY, MANIFEST))
    log.fs.open(join(DIRECTORY, MANIFEST), create=True).close()


def before_first(log: CompactedLog, method: str, happen: Callable[[], object]) -> None:
    """Change the log right before the reader's first call of a disk operation."""
    real = getattr(log.fs, method)

    def called(*arguments: Any, **named: Any) -> Any:
        setattr(log.fs, method, real)
        happen()
        return real(*arguments, **named)

    setattr(log.fs, method, called)


@pytest.mark.parametrize("method", ["read_bytes", "list", "exists", "open"])
def test_a_swap_under_the_look_is_seen_whole_or_not_at_all(method: str) -> None:
    """The segments never belong to another moment than the aborted transactions."""
    log = log_of_segments(3)
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"v"))
    producer.abort()
    log.roll()
    states = [seen(log)]
    before_first(log, method, log.clean)

    during = seen(log)

    states.append(seen(log))
    assert names(states[0]) != names(states[1])
    assert [(names(each), each.aborted) for each in states].count((names(during), during.aborted))


def test_a_roll_under_the_look_loses_nothing() -> None:
    log = log_of_segments(2)
    log.append((b"last", b"value"))

    def roll_and_append() -> None:
        log.roll()
        log.append((b"newer", b"value"))

    before_first(log, "open", roll_and_append)

    assert seen(log).end_offset == 6


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (
            lambda fs, path: fs.overwrite(join(DIRECTORY, MANIFEST), 30, b"x"),
            DamagedFile,
            "checksum",
        ),
        (lambda fs, path: fs.unlink(join(DIRECTORY, MANIFEST)), MissingFile, "manifest"),
        (lambda fs, path: fs.unlink(path), MissingFile, "log"),
    ],
)
def test_damage_is_an_error(
    change: Callable[[Any, str], None], error: type[Exception], reason: str
) -> None:
    log = log_of_segments(2)
    log.append((b"a", b"v"))
    log.log.close()
    path = log.log.segments[-1].path(".log")

    change(log.fs, path)

    with pytest.raises(error, match=reason):
        seen(log)


def test_a_damaged_file_of_aborted_transactions_is_an_error() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"v"))
    producer.abort()
    log.roll()
    log.fs.overwrite(join(DIRECTORY, ABORTED_TRANSACTIONS), 14, b"x")

    with pytest.raises(DamagedFile, match="checksum"):
        seen(log)
