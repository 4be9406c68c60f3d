"""The history of passes: bounded, found again after a restart, and sound after any crash."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files.errors import NoSpace
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.ledger.pass_history import (
    FORMAT,
    HEADER,
    Entry,
    PassHistory,
    decode_line,
    encode_line,
    sound_end,
)
from tests.harness.memory_fs import Loss, MemoryFileSystem

NEWER, OLDER = "data/compaction-history", "data/compaction-history.old"


def disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("data")
    fs.sync_directory("/")
    return fs


def history_on(fs: FileSystem, bytes_max: int = 1 << 20) -> PassHistory:
    return PassHistory(fs, "data", bytes_max=bytes_max)


def append(history: PassHistory, entry: Entry) -> None:
    history.add(entry)
    history.write()


def entry(number: int, topic: str = "orders", partition: int = 0) -> dict[str, object]:
    return {"number": number, "topic": topic, "partition": partition, "result": "completed"}


def numbers(history: PassHistory, **asked: object) -> list[int]:
    found = history.read(**{"limit": 1000, **asked})  # type: ignore[arg-type]
    return [each["number"] for each in found]


def test_passes_are_read_newest_first_and_after_a_restart() -> None:
    fs = disk()
    history = history_on(fs)
    for number in range(3):
        append(history, entry(number))
    history.close()

    again = history_on(fs)
    append(again, entry(3))

    assert numbers(again) == [3, 2, 1, 0]
    assert numbers(again, limit=2) == [3, 2]


def test_a_read_and_a_close_write_what_was_added_before_in_order() -> None:
    fs = disk()
    history = history_on(fs)
    history.add(entry(0))
    history.add(entry(1))

    assert numbers(history) == [1, 0]
    history.add(entry(2))
    history.close()
    assert numbers(history_on(fs)) == [2, 1, 0]


def test_passes_are_found_by_topic_and_partition() -> None:
    history = history_on(disk())
    append(history, entry(0, "orders", 0))
    append(history, entry(1, "orders", 1))
    append(history, entry(2, "orders-2", 0))

    assert numbers(history, topic="orders") == [1, 0]
    assert numbers(history, topic="orders", partition=1) == [1]
    assert numbers(history, partition=0) == [2, 0]
    assert numbers(history, topic="gone") == []


def test_there_is_no_history_before_the_first_pass() -> None:
    fs = disk()

    assert history_on(fs).read(limit=10) == []
    assert fs.list("data") == []


def test_both_files_together_stay_within_the_bound_and_keep_the_newest() -> None:
    fs = disk()
    history = history_on(fs, bytes_max=2000)
    for number in range(500):
        append(history, entry(number))
        assert sum(fs.size(f"data/{name}") for name in fs.list("data")) <= 2000

    kept = numbers(history)
    assert kept == list(range(499, 499 - len(kept), -1))
    assert len(kept) >= 2000 // 2 // len(encode_line(entry(499))) - 1
    assert fs.list("data") == ["compaction-history", "compaction-history.old"]


def test_a_line_larger_than_the_bound_is_kept_alone() -> None:
    history = history_on(disk(), bytes_max=300)
    append(history, entry(0))
    append(history, {**entry(1), "error": "x" * 1000})

    assert numbers(history)[0] == 1


def test_without_a_bound_nothing_is_kept() -> None:
    fs = disk()
    append(history_on(fs, bytes_max=0), entry(0))

    assert fs.list("data") == []


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_torn_last_line_is_cut_before_the_next_one(cut: int) -> None:
    fs = disk()
    history = history_on(fs)
    for number in range(3):
        append(history, entry(number))
    history.close()
    data = fs.read_bytes(NEWER)
    fs.write_bytes(NEWER, data[:-cut])

    again = history_on(fs)
    assert numbers(again) == [1, 0]
    append(again, entry(3))

    assert numbers(again) == [3, 1, 0]
    assert sound_end(fs.read_bytes(NEWER)) == fs.size(NEWER)


def test_a_damaged_line_in_the_middle_costs_only_itself() -> None:
    fs = disk()
    history = history_on(fs)
    for number in range(3):
        append(history, entry(number))
    fs.overwrite(NEWER, fs.read_bytes(NEWER).index(b'"number":1') + 3, b"?")

    assert numbers(history_on(fs)) == [2, 0]


@given(data=st.binary(max_size=300))
def test_whatever_a_file_holds_the_next_pass_is_written_and_found(data: bytes) -> None:
    fs = disk()
    fs.write_bytes(NEWER, data)
    fs.write_bytes(OLDER, data)

    history = history_on(fs)
    append(history, entry(7))

    assert numbers(history) == [7]


@settings(deadline=None)
@given(
    count=st.integers(0, 30),
    bytes_max=st.sampled_from([400, 1000, 100_000]),
    loss=st.sampled_from(list(Loss)),
    seed=st.integers(0, 2**32),
)
def test_after_a_crash_what_is_left_was_written_and_in_order(
    count: int, bytes_max: int, loss: Loss, seed: int
) -> None:
    fs = disk()
    history = history_on(fs, bytes_max)
    for number in range(count):
        append(history, entry(number))

    crashed = fs.after_crash(loss, Random(seed))
    left = numbers(history_on(crashed, bytes_max))
    again = history_on(crashed, bytes_max)
    append(again, entry(count))

    assert left == sorted(set(left) & set(range(count)), reverse=True)
    assert numbers(again)[0] == count


def test_a_killed_process_loses_no_line(tmp_path: Path) -> None:
    """Nothing is buffered in memory: the file has every line."""
    history = PassHistory(LocalFileSystem(), str(tmp_path), bytes_max=1 << 20)
    append(history, entry(0))

    lines = (tmp_path / "compaction-history").read_bytes().splitlines()

    assert [decode_line(line) for line in lines] == [HEADER, entry(0)]
    assert HEADER == {"format": FORMAT}


def test_a_full_disk_loses_lines_says_so_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fs = disk()
    history = history_on(fs)
    append(history, entry(0))

    def full(*_: object) -> None:
        raise NoSpace("write", NEWER, 28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tests.harness.memory_fs.MemoryFile.append", full)
        append(history, entry(1))
        append(history, entry(2))
    append(history, entry(3))

    assert numbers(history) == [3, 0]
    assert len([record for record in caplog.records if "cannot write" in record.message]) == 1
