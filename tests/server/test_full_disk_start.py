"""After a crash, a broker starts on a completely full disk and serves every acknowledged record.

Some writes of a start fit into the space reserved for them; the others wait until there is space.
"""

from __future__ import annotations

from random import Random

import pytest

from server.topics.topic import OfflineLog
from storage.files.files import unlink_if_there
from storage.log.log import PartitionLog
from tests.crash.topic_workload import CrashState, TopicWorkload, check_world
from tests.harness.log_home import read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.topics_world import World, append, open_world

DATA = "/data"
DIRECTORIES = "/a,/b"


async def written(count: int = 3) -> tuple[MemoryFileSystem, World]:
    disk = MemoryFileSystem()
    world = await open_world(disk, DATA)
    # The postponed writes must not depend on it.
    disk.unlink(f"{DATA}/.reserve")
    topic = await world.create("orders", count)
    for number, log in enumerate(topic.logs()):
        append(topic, f"first {number}".encode(), number)
        log.roll(0)
        append(topic, f"second {number}".encode(), number)
        log.advance_high_watermark(log.sync())
    return disk, world


def values(world: World, name: str = "orders") -> list[list[bytes | None]]:
    topic = world.topics.get(name)
    assert topic is not None
    assert all(isinstance(log, PartitionLog) for log in topic.partitions)
    return [[record.value for record in read_all(log)] for log in topic.logs()]


EVERYTHING = [[f"first {n}".encode(), f"second {n}".encode()] for n in range(3)]


@pytest.mark.parametrize("space", [0, 1, 50, 500, 5000])
async def test_a_crashed_broker_starts_and_serves_everything(space: int) -> None:
    disk, world = await written()
    await world.stores.close()
    disk = disk.after_crash(Loss.EVERYTHING, Random(0))
    disk.faults.space = space

    for _ in range(3):
        world = await open_world(disk, DATA)
        assert values(world) == EVERYTHING
        await world.stores.close()
        again = disk.after_crash(Loss.TORN, Random(0))
        again.faults.space, disk = disk.faults.space, again


async def test_what_was_put_off_is_made_up_for_once_there_is_space() -> None:
    disk, world = await written()
    await world.stores.close()
    disk = disk.after_crash(Loss.EVERYTHING, Random(0))
    disk.faults.space = 0
    world = await open_world(disk, DATA)

    disk.faults.heal()
    topic = world.topics.get("orders")
    assert topic is not None
    for number, log in enumerate(topic.logs()):
        append(topic, b"third", number)
        log.roll(0)
        append(topic, b"fourth", number)
        log.advance_high_watermark(log.sync())
    await world.close()

    world = await open_world(disk.after_crash(Loss.EVERYTHING, Random(0)), DATA)
    assert all(directory.was_clean for directory in world.directories)
    assert values(world) == [[*each, b"third", b"fourth"] for each in EVERYTHING]
    await world.close()


async def test_no_two_starts_on_a_full_disk_have_the_same_leader_epoch() -> None:
    disk, world = await written()
    await world.stores.close()
    epochs = [world.directories[0].leader_epoch]
    for loss in [*Loss] * 5:
        disk = disk.after_crash(loss, Random(len(epochs)))
        disk.faults.space = 0
        world = await open_world(disk, DATA)
        epochs.append(world.directories[0].leader_epoch)
        await world.stores.close()
    assert epochs == sorted(set(epochs))


async def check_on_a_full_disk(state: CrashState, space: int, *, has_reserve: bool) -> None:
    """Every acknowledged record is there, on the full disk and then on one with space.

    Without a reserve, a log may be offline until then: a torn tail could not be saved, or an empty new
    log could not be created again.
    """
    state.disk.faults.space = space
    if not has_reserve:
        for path in DIRECTORIES.split(","):
            unlink_if_there(state.disk, f"{path}/.reserve")
            state.disk.faults.space = space
    world = await open_world(state.disk, DIRECTORIES)
    found = {topic.name: topic for topic in world.topics.all()}
    for name, known in state.expected.topics.items():
        if name in state.expected.under_way or known.grown_to:
            continue
        for log, acknowledged in zip(found[name].partitions, known.acknowledged, strict=True):
            if isinstance(log, OfflineLog):
                assert not has_reserve
                assert "/cut." in log.offline_reason or not acknowledged
                continue
            assert len(read_all(log)) >= acknowledged
    await world.topics._deletion.finish()
    await world.stores.close()
    again = state.disk.after_crash(Loss.TORN, Random(0))
    world = await open_world(again, DIRECTORIES)
    await check_world(world, again, state.expected)
    await world.stores.close()


@pytest.mark.parametrize("has_reserve", [True, False], ids=["with reserve", "without"])
async def test_every_crash_state_of_topics_starts_on_a_full_disk(has_reserve: bool) -> None:
    random = Random(7)
    states = 0

    async def check(state: CrashState) -> None:
        nonlocal states
        if states < 250:
            states += 1
            try:
                space = random.choice((0, 0, 10, 200, 1000))
                await check_on_a_full_disk(state, space, has_reserve=has_reserve)
            except Exception as error:
                raise AssertionError(f"state {states}: {state.what}") from error

    await TopicWorkload(3).play(check)
    assert states == 250
