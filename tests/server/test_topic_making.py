"""Many topics at once: few syncs before the answer, nobody held up, and a stop that does not wait."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.error_codes import ErrorCode
from server.topic import Topic, TopicRefused
from server.topic_creation import Wish
from server.topic_deletion import TopicDeletion
from server.topic_keys import CREATING, DELETED, TOPICS, UNSETTLED
from server.topic_making import batches
from storage.errors import StorageError
from storage.local_files import LocalFileSystem
from storage.log_directory import LogDirectory
from tests.harness.faults import FOR_EVER
from tests.harness.held_files import open_descriptors
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.topics_world import World, append, open_world, opened


def wishes(count: int, partitions: int = 1, name: str = "t") -> list[Wish]:
    return [Wish(name=f"{name}{n}", partitions_count=partitions) for n in range(count)]


async def create(world: World, wanted: list[Wish]) -> list[Topic]:
    made = await world.topics.create_all(wanted)
    topics = [topic for topic in made if isinstance(topic, Topic)]
    assert len(topics) == len(wanted)
    return topics


class Gate:
    """Lets nobody make a log of one topic until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()
        create_log = LogDirectory._create_log

        def held(directory: LogDirectory, partition: object, *rest: object) -> object:
            if str(partition).startswith(f"{topic}-"):
                self.is_reached.set()
                assert self._is_open.wait(20)
            return create_log(directory, partition, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(LogDirectory, "_create_log", held)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.is_reached.wait, 20)

    def open(self) -> None:
        self._is_open.set()


def syncs_of(disk: MemoryFileSystem) -> Callable[[], int]:
    """How many syncs there were so far."""
    count = 0

    def changed(action: str, _: str) -> None:
        nonlocal count
        count += action == "sync"

    disk.on_operation = changed
    return lambda: count


async def test_a_hundred_topics_are_made_and_deleted_with_three_syncs_before_the_answers() -> None:
    """A topic took 4 syncs and 2 for each of its partitions, one after the other."""
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    syncs = syncs_of(disk)
    world.administration.may_settle.clear()
    topics = await create(world, wishes(100, 4))
    assert syncs() == 2
    assert len((await world.store.range(UNSETTLED)).entries) == 100
    world.administration.may_settle.set()
    await world.topics._settling.finish()
    assert syncs() > 2 * 400
    assert not (await world.store.range(UNSETTLED)).entries
    before = syncs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicDeletion, "remove_later", lambda *_: None)
        assert await world.topics.delete_all(topics) == [None] * 100
        assert syncs() - before == 1
    await world.close()


async def test_of_many_topics_each_is_made_or_refused_on_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("taken")
        wanted = [
            *wishes(3),
            *(Wish(name=name) for name in ("taken", "bad name", "a.b", "a_b")),
            Wish(name="odd", overrides={"no.such": "1"}),
        ]
        answers = await world.topics.create_all(wanted)
        codes = [answer.error_code if isinstance(answer, TopicRefused) else 0 for answer in answers]
        assert codes == [0, 0, 0, 36, 17, 0, 17, 40]
        assert [topic.name for topic in world.topics.all()] == ["a.b", "t0", "t1", "t2", "taken"]


async def test_a_topic_whose_logs_cannot_be_made_is_taken_back_and_the_others_are_there(
    tmp_path: Path,
) -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    disk.faults.fail("open", 5, path="/data/t1.", times=FOR_EVER)
    answers = await world.topics.create_all(wishes(3, 2))
    assert [isinstance(answer, Topic) for answer in answers] == [True, False, True]
    disk.faults.heal()
    await world.topics._deletion.finish()
    assert {name.partition(".")[0] for name in disk.list("/data") if name.startswith("t")} == {
        "t0", "t2",
    }  # fmt: skip
    await create(world, wishes(2)[1:])
    await world.close()


async def test_logs_of_a_topic_that_is_taken_back_keep_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_log = LogDirectory._create_log

    def failing(directory: LogDirectory, partition: object, *rest: object) -> object:
        if str(partition) == "t0-7":
            raise StorageError("no")
        return create_log(directory, partition, *rest)  # type: ignore[arg-type]

    async with opened(tmp_path) as world:
        before = open_descriptors(tmp_path)
        monkeypatch.setattr(LogDirectory, "_create_log", failing)
        (answer,) = await world.topics.create_all(wishes(1, 8))
        assert isinstance(answer, TopicRefused)
        await world.topics._deletion.finish()
        assert open_descriptors(tmp_path) == before


async def test_a_creation_that_takes_long_holds_up_nobody_who_works_on_another_topic(
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
            [Wish(name="slow")], until_s=asyncio.get_running_loop().time() + 0.05
        )
        assert [each.error_code for each in refused if isinstance(each, TopicRefused)] == [
            ErrorCode.REQUEST_TIMED_OUT
        ]

        gate.open()
        assert len((await slow).logs()) == 50


async def test_whoever_stops_waiting_for_a_creation_does_not_stop_it(
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
async def test_a_stop_takes_back_what_is_under_way_and_begins_nothing(
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
        marks = [(await world.store.range(key)).entries for key in (CREATING, DELETED, UNSETTLED)]
        assert marks == [(), (), ()]


async def test_a_stop_leaves_files_that_are_not_durable_yet_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.topic_settling.STOPPING_SECONDS", 0.0)
    monkeypatch.setattr("server.topic_settling.LOGS_AT_ONCE", 1)
    world = await open_world(LocalFileSystem(), str(tmp_path / "data"))
    (topic,) = await create(world, wishes(1, 50))
    append(topic)
    await world.close()

    async with opened(tmp_path) as world:
        topic = world.topics.all()[0]
        assert [log.log_end_offset for log in topic.logs()] == [1] + [0] * 49
        await world.topics._settling.finish()
        assert not (await world.store.range(UNSETTLED)).entries


async def test_defaults_that_change_meanwhile_hold_for_a_topic_that_is_being_made(
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


async def test_a_large_topic_is_made_alone_and_small_ones_together(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        planned = await world.topics.create_all(
            [*wishes(450), *wishes(3, 90, name="w")], validate_only=True
        )
        topics = [topic for topic in planned if isinstance(topic, Topic)]
        assert [len(batch) for batch in batches(topics)] == [200, 200, 53]
        assert not (await world.store.range(TOPICS)).entries
