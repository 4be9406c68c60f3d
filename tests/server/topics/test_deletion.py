"""Deletions that fail or are interrupted; test_topics.py has the others."""

from __future__ import annotations

from pathlib import Path

from server.topics.keys import DELETED
from tests.harness.topics_world import append, opened


async def test_the_next_start_removes_files_that_a_deletion_could_not(tmp_path: Path) -> None:
    async with opened(tmp_path, "a", "b") as world:
        topic = await world.create("orders", 2)
        append(topic)
        await world.topics._settling.finish()
        world.directories[1].go_offline("for this test")
        assert await world.topics.delete(topic) is None
        await world.topics._deletion.finish()
        assert world.topics.get("orders") is None
        assert homes(tmp_path) == ["b"]
        assert len((await world.store.range(DELETED)).entries) == 1

    async with opened(tmp_path, "a", "b") as world:
        await world.topics._deletion.finish()
        assert world.topics.get("orders") is None
        assert (await world.store.range(DELETED)).entries == ()

    assert homes(tmp_path) == []


def homes(path: Path) -> list[str]:
    """Returns the log directories that have files of the topic."""
    return [found.parent.name for found in path.glob("*/orders.*")]
