"""Low free space: the watch reports it, and the cleaner reacts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from metrics.facts import SnapshotFacts
from server.config.changes import ConfigChange, Operation
from server.durability import space_watch
from server.snapshots.snapshots import Snapshots
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.served_broker import serving_broker_on

CLEANS = {"log_cleaner_enable": "true", "log_cleaner_backoff_ms": "20"}
BOUND = "log_cleaner_disk_pressure_free_bytes"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_watch, "CHECK_SECONDS", 0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - counts set no event
            await asyncio.sleep(0.005)


async def test_a_directory_short_of_space_is_counted_until_it_has_some_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path, **CLEANS, **{BOUND: "1000000"}) as served:
        counts = served.broker.cleaner_counts
        await until(lambda: bool(counts.free_bytes_by_directory))
        assert counts.directories_short_of_space == 0

        files.faults.space = 999_999
        await until(lambda: counts.directories_short_of_space == 1)
        assert set(counts.free_bytes_by_directory.values()) == {999_999}
        files.faults.space = 1_000_000
        await until(lambda: counts.directories_short_of_space == 0)

    said = [record.getMessage() for record in caplog.records if "space" in record.getMessage()]
    assert len(said) == 2
    assert str(tmp_path) in said[0]


async def test_what_only_snapshots_hold_is_said_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path, **CLEANS, **{BOUND: "1000000"}) as served:
        pinned = SnapshotFacts(count=1, size_bytes=5_000_000, pinned_bytes=2_000_000)
        monkeypatch.setattr(Snapshots, "facts", lambda _: pinned)
        files.faults.space = 1
        counts = served.broker.cleaner_counts
        await until(lambda: counts.directories_short_of_space == 1)

    assert "snapshots hold 2.0 MB: see 'kompakt snapshot list'" in caplog.text


async def test_an_io_budget_holds_no_pass_back_where_the_disk_is_nearly_full(
    tmp_path: Path,
) -> None:
    files = FaultyFileSystem()
    settings = CLEANS | {BOUND: "1000000", "log_cleaner_io_max_bytes_per_second": "1"}
    async with serving_broker_on(files, tmp_path, **settings) as served:
        await served.create("orders", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        await served.produce("orders")
        files.faults.space = 900_000
        await until(lambda: served.broker.cleaner_counts.directories_short_of_space == 1)
        log = served.log("orders")
        log.roll(0)

        await until(lambda: log.clean_offset == 1)


async def test_the_bound_changes_while_the_broker_runs(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path, **CLEANS) as served:
        counts = served.broker.cleaner_counts
        name, bound = BOUND.replace("_", "."), str(1 << 62)
        change = ConfigChange(name=name, operation=Operation.SET, value=bound)
        configs = served.broker.configs
        assert not await configs.alter("1", [change], replaces=False, validate_only=False)
        await until(lambda: counts.directories_short_of_space == 1)


async def test_without_the_setting_no_disk_is_too_full(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path, **CLEANS) as served:
        files.faults.space = 0
        counts = served.broker.cleaner_counts
        await until(lambda: set(counts.free_bytes_by_directory.values()) == {0})
        assert counts.directories_short_of_space == 0


async def test_a_disk_that_does_not_tell_its_space_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path, **CLEANS, **{BOUND: "1000000"}) as served:
        counts = served.broker.cleaner_counts
        await until(lambda: bool(counts.free_bytes_by_directory))
        files.faults.fail("stat", errno.EIO, times=1_000_000)
        await until(lambda: not counts.free_bytes_by_directory)

        assert counts.directories_short_of_space == 0
        assert served.broker.directories[0].offline_reason is None
