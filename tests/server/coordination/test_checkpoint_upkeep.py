"""The task that makes checkpoints: in a running broker, and before it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.coordination import checkpoints
from server.coordination.checkpoint_upkeep import CheckpointUpkeep, checkpoint_facts
from server.coordination.groups.loading import load_partition
from storage.files.paths import checkpoint_path
from tests.harness.offsets_world import commit
from tests.harness.served_broker import ServedBroker, serving_broker

SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "replog_replay_ms": "1",
    "log_cleaner_enable": "false",
}


async def commit_many(served: ServedBroker, rounds: int = 20) -> None:
    """Commit at least 100 KB, whose load takes a millisecond at the assumed rate."""
    topic = served.broker.groups.topic
    await topic.ensure()
    for number in range(rounds):
        await topic.append(0, [commit(partition, number) for partition in range(200)])


def checkpoint_of(served: ServedBroker) -> Path:
    return Path(checkpoint_path(served.broker.groups.topic.log_of(0).directory))


async def look(served: ServedBroker) -> None:
    upkeep = served.broker._checkpoints
    assert upkeep is not None
    await upkeep.look()


async def test_a_partition_with_much_to_load_gets_a_checkpoint(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **SETTINGS) as served:
        await commit_many(served)

        await look(served)

        assert checkpoint_of(served).exists()
        ((_, facts),) = checkpoint_facts(served.broker.groups.topic)
        assert facts.end_offset == 4000
        assert facts.replay_seconds == 0
        loaded = await load_partition(served.broker.groups.topic, 0)
        assert loaded.report.checkpoint is not None
        assert len(list(loaded.offsets["g"].places())) == 200


async def test_a_partition_with_little_to_load_gets_none(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **SETTINGS) as served:
        await commit_many(served, rounds=2)

        await look(served)

        assert not checkpoint_of(served).exists()


async def test_a_clean_stop_makes_one_and_the_next_start_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "STOP_BYTES_MIN", 1000)
    async with serving_broker(tmp_path, **SETTINGS | {"replog_replay_ms": "100000"}) as served:
        await commit_many(served)
        await look(served)
        path = checkpoint_of(served)
        assert not path.exists()

    assert path.exists()
    async with serving_broker(tmp_path, **SETTINGS) as served:
        await served.broker.groups.table.loads.loaded()
        assert served.broker.groups.topic.checkpoints.states()[0].end_offset == 4000


async def test_a_clean_stop_makes_no_more_checkpoints_than_it_has_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoints, "STOP_BYTES_MIN", 1000)
    monkeypatch.setattr("server.coordination.checkpoint_upkeep.STOPPING_SECONDS", 0.0)
    caplog.set_level("INFO")
    make = CheckpointUpkeep._make

    async def slow(upkeep: CheckpointUpkeep, *arguments: Any) -> None:
        # The time is over before it begins.
        await asyncio.to_thread(upkeep._stop.wait)
        await make(upkeep, *arguments)

    monkeypatch.setattr(CheckpointUpkeep, "_make", slow)
    settings = SETTINGS | {"replog_replay_ms": "100000", "offsets_topic_num_partitions": "3"}
    async with serving_broker(tmp_path, **settings) as served:
        topic = served.broker.groups.topic
        await topic.ensure()
        for partition in range(3):
            await topic.append(partition, [commit(number, 1) for number in range(200)])
        paths = [Path(checkpoint_path(topic.log_of(n).directory)) for n in range(3)]
    assert [path for path in paths if path.exists()] == []
    assert caplog.text.count("no time is left for further checkpoints") == 1


async def test_a_checkpoint_that_cannot_be_made_is_reported_and_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_broker(tmp_path, **SETTINGS) as served:
        await commit_many(served)
        # A directory is in the way.
        checkpoint_of(served).mkdir()
        (checkpoint_of(served) / "x").touch()

        await look(served)

        assert "cannot make a checkpoint" in caplog.text
        assert served.broker.groups.topic.log_of(0).offline_reason is None
        (checkpoint_of(served) / "x").unlink()
        checkpoint_of(served).rmdir()
