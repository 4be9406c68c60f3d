"""Topics that are gone, and come back with their id: a mirror of a standby has that of its source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from server.topics.topic import Topic, TopicRefused
from storage.files.errors import DiskError
from storage.files.paths import topic_directory
from storage.log.directory import LogDirectory
from tests.harness.topics_world import World, append, opened


@asynccontextmanager
async def slow_removals(world: World) -> AsyncIterator[None]:
    """Let the removal of files wait until the context ends."""
    may_continue = Event()
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
        created = await again(world, topic)
        assert isinstance(created, Topic)
        append(created)

    async with opened(tmp_path) as world:
        found = world.topics.get("t")
        assert found is not None
        assert [log.log_end_offset for log in found.logs()] == [1]


async def test_a_topic_that_is_put_aside_can_come_back_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("t", 2)
        append(topic)
        async with slow_removals(world):
            assert await world.topics.put_aside(topic) is None
            assert aside_of(tmp_path, topic).exists()
            created = await again(world, topic)
            assert isinstance(created, Topic)
            append(created)

    async with opened(tmp_path) as world:
        found = world.topics.get("t")
        assert found is not None
        assert [log.log_end_offset for log in found.logs()] == [1]


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
        assert isinstance(await again(world, topic), Topic)


def failing(*_: object) -> list[str]:
    raise DiskError("rename", "/a", 5, "no")
