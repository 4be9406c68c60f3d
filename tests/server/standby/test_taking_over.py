"""What a start makes of a directory that is a standby's, or is becoming one or the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from replog.trigger import CompactionSettings
from server.broker import Broker
from server.config.config import BrokerConfig
from server.runtime.clock import SystemClock
from server.standby.promotion import Promotion, begin_promotion, read_promotion, read_report
from server.standby.rejoin import begin_rejoin
from storage.files.errors import DamagedFile, ForeignDirectory
from storage.files.local_files import LocalFileSystem
from storage.files.paths import PROMOTION
from tests.harness.log_home import read_all
from tests.harness.served_broker import batch_of, serving_broker
from tests.harness.standby_broker import (
    log_in,
    running_standby,
    serving_source,
    standby_of,
    until_copied,
)

SETTINGS = CompactionSettings()
FILES = LocalFileSystem()


def broker_on(directory: Path) -> Broker:
    texts = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "2"}
    config = BrokerConfig.from_texts(texts | {"http.listener": "", "log.cleaner.enable": "false"})
    return Broker(config, files=FILES, clock=SystemClock())


async def refusal(directory: Path) -> str:
    """Returns why an ordinary start on a directory is refused."""
    broker = broker_on(directory)
    with pytest.raises(ForeignDirectory) as refused:
        await broker.start()
    await broker.stop()
    return str(refused.value)


async def test_an_ordinary_start_refuses_a_standbys_directory_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    async with serving_source(tmp_path / "source") as source:
        await source.create("orders")
        async with running_standby(source, tmp_path / "standby") as standby:
            await standby.until_ready()
    before = sorted((tmp_path / "standby").iterdir())

    reason = await refusal(tmp_path / "standby")

    assert reason.startswith(f"{tmp_path / 'standby'} is a standby's directory: ")
    assert "kompakt standby promote" in reason
    assert sorted((tmp_path / "standby").iterdir()) == before


async def test_an_ordinary_start_refuses_a_directory_that_is_becoming_a_standbys(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
    begin_rejoin(FILES, str(tmp_path))
    assert "is a standby's directory" in await refusal(tmp_path)


async def test_an_ordinary_start_finishes_a_promotion_that_has_begun(tmp_path: Path) -> None:
    directory = tmp_path / "standby"
    async with serving_source(tmp_path / "source") as source:
        await source.create("orders")
        await source.produce("orders", batch_of(3))
        expected = read_all(source.log("orders"))
        async with running_standby(source, directory) as standby:
            await standby.until_ready()
            await standby.until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
        async with standby_of(source, directory) as mirror:
            await until_copied(mirror, "orders", 3)
    begin_promotion(FILES, str(directory), promotion())

    broker = broker_on(directory)
    await broker.start()
    log = log_in(broker, "orders")
    assert log is not None
    assert read_all(log) == expected
    assert not log.config.is_mirror
    await broker.stop()

    assert read_promotion(FILES, str(directory)) is None
    assert read_report(FILES, str(directory), promotion().promoted_ms).missing == []


async def test_a_promotion_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / PROMOTION).write_bytes(b"{")
    broker = broker_on(tmp_path)
    with pytest.raises(DamagedFile):
        await broker.start()
    await broker.stop()


def promotion() -> Promotion:
    return Promotion(
        promoted_ms=7,
        standby="standby",
        source="source:9092",
        forced=False,
        epoch=3,
        missing=[],
        unknown_topics=[],
    )
