"""Bugs put in on purpose: the sweep over crash states must catch each of them."""

from __future__ import annotations

import pytest

from storage.segment_list import SegmentList
from tests.crash.sweep import caught
from tests.harness.memory_fs import MemoryFileSystem


def test_sweep_catches_a_disk_that_does_not_sync_directories() -> None:
    assert caught(ignores_directory_sync=True)


def test_sweep_catches_an_acknowledgement_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentList, "sync", lambda _, end_of_log: end_of_log())
    assert caught()


def test_sweep_catches_a_rolled_segment_removed_as_an_orphan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.recovery._Recovery._is_empty", lambda *_: True)
    assert caught()


def test_sweep_catches_a_commit_that_lists_what_is_not_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SegmentList, "_seal", lambda *_: None)
    assert caught()


def test_sweep_catches_a_swap_without_a_synced_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(disk: MemoryFileSystem, path: str, data: bytes) -> None:
        disk.write_bytes(path, data)

    monkeypatch.setattr(MemoryFileSystem, "replace_durably", replace)
    assert caught()
