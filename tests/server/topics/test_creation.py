"""Creating many topics at once: one sync before the answer, no delay of others, and fast stops."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from server.topics.creation import batches
from server.topics.deletion import TopicDeletion
from server.topics.keys import DELETED, PLACED, TOPICS, UNSETTLED, placement
from server.topics.topic import Topic, TopicRefused
from server.topics.validation import NewTopic
from storage.files.errors import LogOffline, StorageError
from storage.files.local_files import LocalFileSystem
from storage.log.directory import LogDirectory
from tests.crash.topic_workload import at_rest
from tests.harness.held_files import open_descriptors
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.topics_world import World, append, open_world, opened


def new_topics(count: int, partitions: int = 1, name: str = "t") -> list[NewTopic]:
    return [NewTopic(name=f"{name}{n}", partitions_count=partitions) for n in range(count)]


async def create(world: World, wanted: list[NewTopic]) -> list[Topic]:
    made = await world.topics.create_all(wanted)
    topics = [topic for topic in made if isinstance(topic, Topic)]
    assert len(topics) == len(wanted)
    return topics


class Gate:
    """Blocks the creation of one topic's logs until the test opens it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()
        plan_log = LogDirectory._plan_log

        def held(directory: LogDirectory, partition: object, *rest: object) -> object:
            if str(partition).startswith(f"{topic}-"):
                self.is_reached.set()
                assert self._is_open.wait(20)
            return plan_log(directory, partition, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(LogDirectory, "_plan_log", held)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.is_reached.wait, 20)

    def open(self) -> None:
        self._is_open.set()


def syncs_of(disk: MemoryFileSystem) -> Callable[[], int]:
    """Returns a function that counts the syncs so far."""
    count = 0

    def changed(action: str, _: str) -> None:
        nonlocal count
        count += action == "sync"

    disk.on_operation = changed
    return lambda: count


async def test_a_hundred_topics_are_created_and_deleted_with_two_syncs_before_each_answer() -> None:
    """Once, a topic took 4 syncs, and 2 for each of its partitions, one after the other."""
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    syncs = syncs_of(disk)
    world.administration.may_make_files.clear()
    topics = await create(world, new_topics(100, 4))
    # One of each store.
    assert syncs() == 2
    assert len((await world.node_store.range(UNSETTLED)).entries) == 100
    assert not [name for name in disk.list("/data") if name.startswith("t")]
    world.administration.release()
    await world.topics._settling.finish()
    # One of the disk, and one of the node's store.
    assert syncs() == 4
    assert not (await world.node_store.range(UNSETTLED)).entries
    before = syncs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicDeletion, "remove_later", lambda *_, **__: None)
        assert await world.topics.delete_all(topics) == [None] * 100
        assert syncs() - before == 2
    await world.close()


async def test_each_of_many_topics_is_created_or_refused_by_itself(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("taken")
        wanted = [
            *new_topics(3),
            *(NewTopic(name=name) for name in ("taken", "bad name", "a.b", "a_b")),
            NewTopic(name="odd", overrides={"no.such": "1"}),
        ]
        answers = await world.topics.create_all(wanted)
        codes = [answer.error_code if isinstance(answer, TopicRefused) else 0 for answer in answers]
        assert codes == [0, 0, 0, 36, 17, 0, 17, 40]
        assert [topic.name for topic in world.topics.all()] == ["a.b", "t0", "t1", "t2", "taken"]


async def test_a_topic_whose_logs_cannot_be_planned_is_undone_and_the_others_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan_log = LogDirectory._plan_log

    def failing(directory: LogDirectory, partition: object, *rest: object) -> object:
        if str(partition) == "t1-1":
            raise StorageError("no")
        return plan_log(directory, partition, *rest)  # type: ignore[arg-type]

    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    monkeypatch.setattr(LogDirectory, "_plan_log", failing)
    answers = await world.topics.create_all(new_topics(3, 2))
    assert [isinstance(answer, Topic) for answer in answers] == [True, False, True]
    monkeypatch.undo()
    await at_rest(world)
    assert {name.partition(".")[0] for name in disk.list("/data") if name.startswith("t")} == {
        "t0", "t2",
    }  # fmt: skip
    await create(world, new_topics(2)[1:])
    await world.close()


async def test_files_that_cannot_be_created_yet_are_created_by_the_first_write() -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    disk.faults.fail("append to", errno.ENOSPC, path="manifest")
    (topic,) = await create(world, new_topics(1))
    await at_rest(world)
    assert world.directories[0].offline_reason is None
    assert len((await world.node_store.range(UNSETTLED)).entries) == 1
    append(topic)
    (log,) = topic.logs()
    log.advance_high_watermark(log.sync())

    left = disk.after_crash(Loss.EVERYTHING, Random(0))
    await world.close()
    world = await open_world(left, "/data")
    assert [log.log_end_offset for log in world.topics.logs()] == [1]
    await world.close()


async def test_a_topic_that_is_deleted_before_it_has_files_never_gets_any() -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    world.administration.may_make_files.clear()
    (topic,) = await create(world, new_topics(1, 3))
    assert not any(log.new_files.are_made for log in topic.logs())
    assert await world.topics.delete(topic) is None
    await at_rest(world)
    for log in topic.logs():
        with pytest.raises(LogOffline):
            log.new_files.make()
    assert not [name for name in disk.list("/data") if name.startswith("t0")]
    await world.close()


async def test_a_stop_leaves_files_that_do_not_exist_yet_to_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.topics.settling.STOPPING_SECONDS", 0.0)
    monkeypatch.setattr("server.topics.settling.LOGS_AT_ONCE", 1)
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    world.administration.may_make_files.clear()
    await create(world, new_topics(1, 3))
    await world.close()
    assert len([name for name in disk.list("/data") if name.startswith("t0")]) <= 1

    world = await open_world(disk, "/data")
    assert world.directories[0].was_clean
    (topic,) = world.topics.all()
    assert all(log.new_files.are_made for log in topic.logs())
    await at_rest(world)
    assert not (await world.node_store.range(UNSETTLED)).entries
    await world.close()


async def test_logs_of_an_undone_topic_keep_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_log = LogDirectory._plan_log

    def failing(directory: LogDirectory, partition: object, *rest: object) -> object:
        if str(partition) == "t0-7":
            raise StorageError("no")
        return plan_log(directory, partition, *rest)  # type: ignore[arg-type]

    async with opened(tmp_path) as world:
        before = open_descriptors(tmp_path)
        monkeypatch.setattr(LogDirectory, "_plan_log", failing)
        (answer,) = await world.topics.create_all(new_topics(1, 8))
        assert isinstance(answer, TopicRefused)
        await world.topics._deletion.finish()
        assert open_descriptors(tmp_path) == before


async def test_a_slow_creation_does_not_delay_operations_on_other_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        other = await world.create("other")
        gate = Gate(monkeypatch, "slow")
        slow = asyncio.create_task(world.create("slow", 50))
        await gate.reached()

        await world.create("quick")
        grown = await world.topics.add_partitions("quick", 5)
        assert isinstance(grown, Topic)
        assert isinstance(
            await world.topics.alter("other", lambda *_: {"retention.ms": "1"}), Topic
        )
        assert await world.topics.delete(other) is None
        assert not slow.done()
        refused = await world.topics.create_all(
            [NewTopic(name="slow")], until_s=asyncio.get_running_loop().time() + 0.05
        )
        assert [each.error_code for each in refused if isinstance(each, TopicRefused)] == [
            ErrorCode.REQUEST_TIMED_OUT
        ]

        gate.open()
        assert len((await slow).logs()) == 50


async def test_cancelling_the_caller_does_not_stop_a_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        gate = Gate(monkeypatch, "slow")
        slow = asyncio.create_task(world.create("slow", 5))
        await gate.reached()
        slow.cancel()
        gate.open()
        made = await world.topics.create_if_absent("slow")
        assert isinstance(made, Topic)
        assert len(made.logs()) == 5


@pytest.mark.parametrize("is_growth", [False, True], ids=["creation", "growth"])
async def test_a_stop_undoes_running_changes_and_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_growth: bool
) -> None:
    world = await open_world(LocalFileSystem(), str(tmp_path / "data"))
    if is_growth:
        await world.create("slow", 1)
    gate = Gate(monkeypatch, "slow")
    work = world.topics.add_partitions("slow", 90) if is_growth else world.topics.create("slow")
    slow = asyncio.create_task(work)
    await gate.reached()
    world.topics.interrupt()
    late = await world.topics.create("late")
    gate.open()
    for refused in (await slow, late):
        assert isinstance(refused, TopicRefused)
        assert refused.error_code is ErrorCode.REQUEST_TIMED_OUT
    await world.close()

    async with opened(tmp_path) as world:
        await world.topics._deletion.finish()
        await world.topics._settling.finish()
        found = {topic.name: len(topic.logs()) for topic in world.topics.all()}
        assert found == ({"slow": 1} if is_growth else {})
        logs = list((tmp_path / "data").glob("slow.*/*"))
        assert len(logs) == len(found)
        marks = [(await world.node_store.range(key)).entries for key in (DELETED, UNSETTLED)]
        assert marks == [(), ()]
        placed = [entry.value for entry in (await world.node_store.range(PLACED)).entries]
        assert [len(placement(value)[1]) for value in placed] == ([1] if is_growth else [])


async def test_logs_are_settled_one_by_one_where_the_disk_cannot_be_synced_as_a_whole() -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    disk.faults.fail("sync all of", 5)
    syncs = syncs_of(disk)
    await create(world, new_topics(2, 10))
    await world.topics._settling.finish()
    assert syncs() > 2 * 20
    assert world.directories[0].offline_reason is None
    assert not (await world.node_store.range(UNSETTLED)).entries
    left = disk.after_crash(Loss.EVERYTHING, Random(0))
    await world.close()
    world = await open_world(left, "/data")
    assert sum(len(topic.logs()) for topic in world.topics.all()) == 20
    await world.close()


async def test_a_stop_leaves_unsettled_files_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.topics.settling.TOGETHER_MIN", 99)
    monkeypatch.setattr("server.topics.settling.STOPPING_SECONDS", 0.0)
    monkeypatch.setattr("server.topics.settling.LOGS_AT_ONCE", 1)
    world = await open_world(LocalFileSystem(), str(tmp_path / "data"))
    (topic,) = await create(world, new_topics(1, 50))
    append(topic)
    await world.close()

    async with opened(tmp_path) as world:
        topic = world.topics.all()[0]
        assert [log.log_end_offset for log in topic.logs()] == [1] + [0] * 49
        await world.topics._settling.finish()
        assert not (await world.node_store.range(UNSETTLED)).entries


async def test_changed_defaults_apply_to_a_topic_that_is_being_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        gate = Gate(monkeypatch, "slow")
        slow = asyncio.create_task(world.create("slow", 2))
        await gate.reached()
        changed = dataclasses.replace(world.topics._defaults.config, retention_ms=5)
        await world.topics.follow_defaults(changed)
        gate.open()
        topic = await slow
        assert {log.config.retention_ms for log in topic.logs()} == {5}
        assert world.topics.get("slow") is topic


async def test_a_large_topic_is_a_batch_by_itself_and_small_ones_share_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        planned = await world.topics.create_all(
            [*new_topics(450), *new_topics(3, 90, name="w")], validate_only=True
        )
        topics = [topic for topic in planned if isinstance(topic, Topic)]
        assert [len(batch) for batch in batches(topics)] == [200, 200, 53]
        assert not (await world.store.range(TOPICS)).entries
