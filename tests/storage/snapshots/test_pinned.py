"""What snapshots hold of the disk."""

from __future__ import annotations

from storage.files.files import FileIdentity
from storage.snapshots.pinned import count_pinned


def file(number: int, names_count: int, size: int = 100) -> FileIdentity:
    return FileIdentity((0, number), names_count, size)


def test_nothing_is_pinned_without_snapshots() -> None:
    assert (count_pinned([]).total, count_pinned([]).alone) == (0, {})


def test_file_that_the_log_has_too_is_not_pinned() -> None:
    pinned = count_pinned([("a", file(1, 2))])
    assert (pinned.total, pinned.alone) == (0, {"a": 0})


def test_file_that_the_log_has_lost_is_pinned_by_the_only_snapshot_that_has_it() -> None:
    pinned = count_pinned([("a", file(1, 1)), ("b", file(2, 2, 7)), ("b", file(3, 1, 5))])
    assert (pinned.total, pinned.alone) == (105, {"a": 100, "b": 5})


def test_file_that_two_snapshots_have_is_pinned_but_dropping_one_frees_nothing() -> None:
    pinned = count_pinned([("a", file(1, 2)), ("b", file(1, 2)), ("a", file(2, 3))])
    assert (pinned.total, pinned.alone) == (100, {"a": 0, "b": 0})


def test_two_names_in_one_snapshot_are_freed_together() -> None:
    pinned = count_pinned([("a", file(1, 2)), ("a", file(1, 2))])
    assert (pinned.total, pinned.alone) == (100, {"a": 100})


def test_log_that_loses_its_name_during_the_count_leaves_a_pinned_file() -> None:
    pinned = count_pinned([("a", file(1, 3)), ("b", file(1, 2))])
    assert (pinned.total, pinned.alone) == (100, {"a": 0, "b": 0})
