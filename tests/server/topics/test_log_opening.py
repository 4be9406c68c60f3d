"""Opening all logs at a start: in parallel after a crash, with progress."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from server.topics.topic import Topic
from storage.files.local_files import LocalFileSystem
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from tests.harness.topics_world import World, append, open_world, opened

PATIENCE_SECONDS = 300.0


async def crashed(tmp_path: Path, *names: str) -> None:
    """Create a topic with four partitions and a record in each, and stop its broker uncleanly."""
    async with opened(tmp_path, *names) as world:
        topic = await world.create("orders", 4)
        for number in range(4):
            append(topic, partition=number)
    for name in names:
        (tmp_path / name / ".clean-shutdown").unlink()


async def reopened(tmp_path: Path, *names: str, threads: int = 2) -> World:
    paths = ",".join(str(tmp_path / name) for name in names)
    texts = {"num.recovery.threads.per.data.dir": str(threads)}
    return await open_world(LocalFileSystem(), paths, **texts)


def orders(world: World) -> Topic:
    topic = world.topics.get("orders")
    assert topic is not None
    return topic


class Meeting:
    """Opens a log only while others are being opened, and records the threads that do it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=PATIENCE_SECONDS)
        self.threads: set[str] = set()
        self._open = LogDirectory.open_log
        monkeypatch.setattr(LogDirectory, "open_log", lambda *arguments: self.open(*arguments))

    def open(self, *arguments: object) -> PartitionLog:
        self.threads.add(threading.current_thread().name)
        self.barrier.wait()
        return self._open(*arguments)  # type: ignore[arg-type]


async def test_the_configured_number_of_logs_is_recovered_in_parallel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crashed(tmp_path, "data")
    meeting = Meeting(monkeypatch, 2)

    world = await reopened(tmp_path, "data", threads=2)

    assert [log.log_end_offset for log in orders(world).logs()] == [1, 1, 1, 1]
    assert len(meeting.threads) == 2
    await world.close()


async def test_directories_are_recovered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crashed(tmp_path, "a", "b")
    meeting = Meeting(monkeypatch, 2)

    world = await reopened(tmp_path, "a", "b", threads=1)

    assert [log.log_end_offset for log in orders(world).logs()] == [1, 1, 1, 1]
    assert len(meeting.threads) == 2
    await world.close()


async def test_recovery_counts_and_logs_scanned_and_cut_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await crashed(tmp_path, "data")
    (path, *_) = sorted((tmp_path / "data").glob("orders.*/0/*.log"))
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"torn")
    (path.parent / "manifest").unlink()

    world = await reopened(tmp_path, "data")

    progress = world.progress
    assert (progress.logs_opened, progress.logs_to_open) == (4, 4)
    assert progress.logs_recovered_total == 1, "the others were as a clean stop leaves them"
    assert progress.bytes_scanned_total == size
    assert (progress.bytes_cut_total, progress.files_cut_total) == (4, 1)
    assert f"{size:,} bytes scanned, 4 bytes cut into 1 file" in caplog.text
    assert str(progress) == "4 of 4 logs are open, 0 MiB were scanned"
    await world.close()


async def test_clean_start_recovers_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as world:
        await world.create("orders", 3)
    caplog.set_level("INFO")

    async with opened(tmp_path) as world:
        assert world.progress.logs_opened == 3
        assert world.progress.logs_recovered_total == 0
    assert "recovered" not in caplog.text


async def test_a_long_start_logs_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await crashed(tmp_path, "data")
    caplog.set_level("INFO")
    monkeypatch.setattr("server.topics.start.PROGRESS_SECONDS", 0.01)
    said = threading.Event()
    original = LogDirectory.open_log

    def slow(*arguments: object) -> PartitionLog:
        for _ in range(2000):
            if "recovering: 0 of 4 logs are open" in caplog.text:
                break
            said.wait(0.01)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LogDirectory, "open_log", slow)
    world = await reopened(tmp_path, "data")
    assert "recovering: 0 of 4 logs are open" in caplog.text
    await world.close()
