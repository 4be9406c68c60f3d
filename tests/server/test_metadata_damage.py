"""Damages every byte of the metadata logs and starts again: no acknowledged record may be lost.

A start either serves every record, or fails with a sentence and leaves all files alone. It never removes
a topic's files because it cannot read a transaction of the metadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from replog.frames import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, head_at
from replog.trigger import CompactionSettings
from server.config.config import BrokerConfig
from server.topics.migration import CREATING
from server.topics.topic import OfflineLog, Topic
from storage.files.errors import MissingMetadata, StorageError
from storage.files.paths import topic_id_text
from tests.harness.earlier_store import make_earlier
from tests.harness.examples import every
from tests.harness.log_home import read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.topics_world import World, append, open_world

DATA = "/data"
METADATA = f"{DATA}/metadata"
LOG = f"{METADATA}/{1:020d}.replog"
NODE = f"{DATA}/node"
NODE_LOG = f"{NODE}/{1:020d}.replog"

Step = Callable[[World], Awaitable[None]]


async def created(world: World) -> None:
    """Make the last transaction acknowledge the creation of `newest`."""
    await world.create("newest", 2)


async def grown(world: World) -> None:
    """Make the last transaction acknowledge new partitions of `newest`."""
    await world.create("newest", 1)
    assert isinstance(await world.topics.add_partitions("newest", 2), Topic)


async def altered(world: World) -> None:
    """Make the last transaction change the configuration of `newest`."""
    await world.create("newest", 2)
    await world.topics.alter("newest", lambda *_: {"retention.ms": "1"})


async def another_deleted(world: World) -> None:
    """Make the last transaction say that the files of another topic are removed."""
    await world.create("newest", 2)
    assert await world.topics.delete(await world.create("another")) is None
    await world.topics._deletion.finish()


STEPS: list[Step] = [created, grown, altered, another_deleted]
LOGS = [LOG, NODE_LOG]


async def written(step: Step, *, is_clean: bool) -> MemoryFileSystem:
    """Returns a disk with an acknowledged record in every partition."""
    disk = MemoryFileSystem()
    world = await open_world(disk, DATA)
    await world.create("oldest", 1)
    await step(world)
    for topic in world.topics.all():
        for log in topic.logs():
            number = log.topic_partition.partition
            append(topic, f"{topic.name}-{number} is here".encode(), number)
            log.advance_high_watermark(log.sync())
    if is_clean:
        await world.close()
    else:
        await stop(world)
    return disk.after_crash(Loss.EVERYTHING, Random(0))


async def stop(world: World) -> None:
    """End the background work, then stop uncleanly."""
    await world.topics._settling.finish()
    await world.topics._deletion.finish()
    await world.stores.close()


def records() -> set[bytes]:
    """Returns the records that `written` has acknowledged."""
    return {f"{name} is here".encode() for name in ("oldest-0", "newest-0", "newest-1")}


def all_bytes(disk: MemoryFileSystem, path: str = "/data") -> bytes:
    """Returns the bytes of every file."""
    contents = b""
    for name in disk.list(path):
        below = f"{path}/{name}"
        try:
            contents += disk.read_bytes(below)
        except StorageError:
            contents += all_bytes(disk, below)
    return contents


def served(world: World) -> set[bytes | None]:
    """Returns the values of all records that clients can read."""
    # Its deletion may be lost; then the topic is there again, without its files.
    topics = [topic for topic in world.topics.all() if topic.name != "another"]
    logs = [log for topic in topics for log in topic.partitions]
    assert not any(isinstance(log, OfflineLog) for log in logs)
    return {
        record.value
        for topic in world.topics.all()
        for log in topic.logs()
        for record in read_all(log)
    }


async def check(disk: MemoryFileSystem, what: str) -> str | None:
    """Start on a damaged disk. Returns the error's text, or None if all records are served."""
    refusal = None
    try:
        world = await open_world(disk, DATA)
    except StorageError as error:
        refusal = str(error)
    else:
        assert served(world) == records(), what
        await stop(world)
    assert refusal is None or METADATA in refusal or NODE in refusal, what
    kept = all_bytes(disk)
    assert all(value in kept for value in records()), what
    return refusal


def damages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields other values for a log's bytes: several for the last transaction's, one for the others."""
    last = last_frame(data)
    for position, byte in enumerate(data):
        others = {byte ^ 1, byte ^ 0xFF, 0} if position >= last else {byte ^ 0xFF}
        for value in sorted(others - {byte}):
            yield position, bytes([value])


def last_frame(data: bytes) -> int:
    """Returns the position where the last transaction begins."""
    position = SEGMENT_HEADER_BYTES
    while True:
        head = head_at(data, position)
        assert head is not None
        if position + FRAME_HEADER_BYTES + head.size == len(data):
            return position
        position += FRAME_HEADER_BYTES + head.size


@pytest.mark.parametrize("log", LOGS, ids=["cluster", "node"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_no_damaged_byte_of_a_metadata_log_costs_a_record(
    step: Step, is_clean: bool, log: str
) -> None:
    disk = await written(step, is_clean=is_clean)
    data = disk.read_bytes(log)

    refused = tried = 0
    for position, value in every(5, damages(data)):
        copy = disk.after_crash(Loss.EVERYTHING, Random(0))
        copy.overwrite(log, position, value)
        tried += 1
        refused += await check(copy, f"byte {position} of {len(data)} is {value!r}") is not None
    assert refused > tried * 0.6


@pytest.mark.parametrize("log", LOGS, ids=["cluster", "node"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_no_shortened_last_transaction_costs_a_record(step: Step, log: str) -> None:
    disk = await written(step, is_clean=True)
    data = disk.read_bytes(log)

    for size in every(3, range(last_frame(data), len(data))):
        copy = disk.after_crash(Loss.EVERYTHING, Random(0))
        copy.write_bytes(log, data[:size])
        assert await check(copy, f"{size} of {len(data)} bytes") is None


@pytest.mark.parametrize("log", LOGS, ids=["cluster", "node"])
async def test_no_cut_of_a_metadata_log_removes_a_record(log: str) -> None:
    disk = await written(grown, is_clean=True)
    data = disk.read_bytes(log)

    for size in every(5, range(len(data))):
        copy = disk.after_crash(Loss.EVERYTHING, Random(0))
        copy.write_bytes(log, data[:size])
        with contextlib.suppress(StorageError):
            world = await open_world(copy, DATA)
            await stop(world)
        kept = all_bytes(copy)
        assert all(value in kept for value in records()), f"{size} of {len(data)} bytes"


async def test_a_creation_is_not_undone_while_the_directory_of_one_of_its_logs_is_offline() -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data,/other")
    topic = await world.create("newest", 2)
    append(topic, b"newest-1 is here", 1)
    log = topic.logs()[1]
    log.advance_high_watermark(log.sync())
    await world.topics._settling.finish()
    await world.close()
    # So says a damaged store of an earlier release, which wrote this before a creation.
    make_earlier(disk, DATA, {CREATING + topic_id_text(topic.id): ""})
    disk.rename("/other", "/away")

    world = await open_world(disk, "/data")
    found = world.topics.get("newest")
    assert found is not None
    assert [isinstance(each, OfflineLog) for each in found.partitions] == [False, True]
    await world.close()

    disk.rename("/away", "/other")
    world = await open_world(disk, "/data,/other")
    assert served(world) == {b"newest-1 is here"}
    await world.close()


def without_directory(disk: MemoryFileSystem) -> None:
    disk.remove_tree(METADATA)


def without_files(disk: MemoryFileSystem) -> None:
    disk.unlink(LOG)


def without_bytes(disk: MemoryFileSystem) -> None:
    disk.write_bytes(LOG, b"")


def without_transactions(disk: MemoryFileSystem) -> None:
    data = disk.read_bytes(LOG)
    disk.write_bytes(LOG, data[:SEGMENT_HEADER_BYTES])


@pytest.mark.parametrize(
    "lose", [without_directory, without_files, without_bytes, without_transactions]
)
async def test_topics_without_metadata_refuse_every_start_with_a_sentence(
    lose: Callable[[MemoryFileSystem], None],
) -> None:
    disk = await written(created, is_clean=True)
    lose(disk)
    before = all_bytes(disk)

    for _ in range(2):
        with pytest.raises(MissingMetadata, match="/data/metadata is missing or empty, but /data/"):
            await open_world(disk, DATA)
        disk = disk.after_crash(Loss.NOTHING, Random(0))
    assert all(value in before and value in all_bytes(disk) for value in records())
    assert disk.exists(METADATA) is (lose is not without_directory)


async def test_a_lost_snapshot_or_log_of_the_metadata_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    often = CompactionSettings(u=1.0, floor_bytes=20)
    monkeypatch.setattr(BrokerConfig, "compaction_settings", lambda _: often)
    disk = await written(created, is_clean=True)
    *older, snapshot, log = disk.list(METADATA)
    names = (snapshot, log)
    assert [name.rpartition(".")[2] for name in names] == ["checkpoint", "replog"]
    for name in older:
        # Entries for slow followers: the state is also lost without them.
        disk.unlink(f"{METADATA}/{name}")

    for name in names:
        copy = disk.after_crash(Loss.NOTHING, Random(0))
        copy.unlink(f"{METADATA}/{name}")
        with pytest.raises(StorageError, match=f"{METADATA}/{name} is damaged: "):
            await open_world(copy, DATA)
