"""Deletions that fail or are interrupted; test_topics.py has the others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from server.topics.keys import DELETED
from storage.files.local_files import LocalFileSystem
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
        assert len((await world.node_store.range(DELETED)).entries) == 1

    async with opened(tmp_path, "a", "b") as world:
        await world.topics._deletion.finish()
        assert world.topics.get("orders") is None
        assert (await world.node_store.range(DELETED)).entries == ()

    assert homes(tmp_path) == []


class SlowToRemove(LocalFileSystem):
    """Files of which every removal waits, as that of large files does on some file systems."""

    def __init__(self) -> None:
        super().__init__()
        self.may_remove = threading.Event()

    def remove_tree(self, path: str) -> None:
        self.may_remove.wait()
        super().remove_tree(path)


async def test_deletions_on_a_slow_disk_hold_up_no_other_topic(tmp_path: Path) -> None:
    files = SlowToRemove()
    async with opened(tmp_path, files=files) as world:
        try:
            for number in range(8):
                assert await world.topics.delete(await world.create(f"large-{number}")) is None
            await asyncio.wait_for(world.create("orders"), 30)
        finally:
            files.may_remove.set()


def homes(path: Path) -> list[str]:
    """Returns the log directories that have files of the topic."""
    return [found.parent.name for found in path.glob("*/orders.*")]
