"""Deletions that fail or are interrupted, and topics that come back with their id, as a standby's;
test_topics.py has the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from server.topics.keys import DELETED
from server.topics.topic import Topic, TopicRefused
from storage.files.errors import DiskError
from storage.files.local_files import LocalFileSystem
from storage.files.paths import topic_directory
from storage.log.directory import LogDirectory
from tests.harness.topics_world import World, append, opened


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


@asynccontextmanager
async def slow_removals(world: World) -> AsyncIterator[None]:
    """Let the removal of files wait until the context ends."""
    may_continue = threading.Event()
    busy = asyncio.create_task(world.removals.run(may_continue.wait))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        may_continue.set()
        await busy


def aside_of(folder: Path, topic: Topic) -> Path:
    return folder / "data" / f"{topic_directory(topic.name, topic.id)}.before"


async def again(world: World, topic: Topic) -> Topic | TopicRefused:
    return await world.topics.create(topic.name, partitions_count=1, topic_id=topic.id)


async def created_again(world: World, topic: Topic) -> Topic:
    created = await again(world, topic)
    assert isinstance(created, Topic)
    return created


async def check_has_one_record(folder: Path) -> None:
    """After a start the topic has what was appended since it was created again, and nothing else."""
    async with opened(folder) as world:
        found = world.topics.get("t")
        assert found is not None
        assert [log.log_end_offset for log in found.logs()] == [1]


async def test_a_topic_is_not_created_with_its_id_before_its_files_are_removed(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("t", 2)
        append(topic)
        async with slow_removals(world):
            assert await world.topics.delete(topic) is None
            refused = await again(world, topic)
            assert isinstance(refused, TopicRefused)
            assert "not yet removed" in refused.message
        await world.topics._deletion.finish()
        append(await created_again(world, topic))

    await check_has_one_record(tmp_path)


async def test_a_topic_that_is_put_aside_can_come_back_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("t", 2)
        append(topic)
        async with slow_removals(world):
            assert await world.topics.put_aside(topic) is None
            assert aside_of(tmp_path, topic).exists()
            append(await created_again(world, topic))

    await check_has_one_record(tmp_path)


async def test_a_topic_that_could_not_be_put_aside_does_not_come_back_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("t")
        append(topic)
        monkeypatch.setattr(LogDirectory, "put_topics_aside", failing)
        assert await world.topics.put_aside(topic) is None
        refused = await again(world, topic)
        assert isinstance(refused, TopicRefused)

    monkeypatch.undo()
    async with opened(tmp_path) as world:
        assert aside_of(tmp_path, topic).exists()
        await created_again(world, topic)


def failing(*_: object) -> list[str]:
    raise DiskError("rename", "/a", 5, "no")
