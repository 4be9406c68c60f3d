"""Stop a promotion, and a rejoin, at every operation of the disk, and start again.

After every crash the next start finishes what had begun: the followed metadata is the broker's own, the
coordinators' logs have the copies' state, every topic is open, producer ids were moved on once, and each
log leads above the source's epochs. What the promotion replaces is aside. After a rejoin each topic is a
mirror with its records, and the coordinators' logs are aside.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import pytest

from protocol.records.record_batch import Record
from protocol.wire.numbers import Offset
from replog.trigger import CompactionSettings
from server.coordination.checkpoints import TopicCheckpoints
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.coordination.state_loading import feed_log, load_state
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.producer_ids import KEY as NEXT_PRODUCER_ID
from server.metadata.reign import EPOCH_STEP
from server.metadata.store import Put
from server.replication.link_spec import STANDBY_LINK
from server.runtime.executors import Executor
from server.standby import install as install_module
from server.standby.partition_copy import PartitionCopy
from server.standby.promoted_stores import PRODUCER_IDS_SKIPPED
from server.standby.promotion import (
    MirroredTopic,
    Promotion,
    begin_promotion,
    end_promotion,
)
from server.standby.rejoin import begin_rejoin
from server.standby.taking_over import taking_over
from server.topics.keys import TOPICS, topic_value
from server.topics.mirrors import LINK, SOURCE_ID
from server.topics.stores import open_stores
from storage.files.files import FileSystem
from storage.files.paths import topic_directory, topic_id_text
from storage.formats.log_identity import LogIdentity
from storage.formats.meta_properties import read_meta_properties
from storage.formats.topic_partition import TopicPartition
from storage.log.appender import Appended
from storage.log.directory_start import make_durably
from storage.log.log import PartitionLog
from tests.harness.checkpointed_log import CheckpointedLog, State, new_scan, state_of
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.offsets_model import Commit
from tests.harness.served_broker import NOW_MS
from tests.harness.topics_world import World, open_world

SETTINGS = CompactionSettings()
DIRECTORIES = ("/a", "/b")
OFFSETS_ID, LATE_ID = uuid.UUID(int=5), uuid.UUID(int=6)
EPOCH = 50
NODE_CONFIGS = "/broker_configs/1"


@dataclass(slots=True)
class Standby:
    """The disk of a standby whose promotion has begun, and what must be there in the end."""

    disk: MemoryFileSystem
    orders: uuid.UUID
    new: MirroredTopic
    records: list[Record]
    state: State


async def standby(seed: int) -> Standby:
    random = Random(seed)
    disk = MemoryFileSystem()
    world = await open_world(disk, ",".join(DIRECTORIES))
    topics = {
        name: await world.create(
            name, 2, **{LINK.replace(".", "_"): STANDBY_LINK, "mirror_source_topic_id": "A" * 22}
        )
        for name in ("orders", "new")
    }
    records = list[Record]()
    for number in range(3):
        data = batch_of([(f"k{number}".encode(), b"v")])
        log = topics["orders"].logs()[0]
        assert isinstance(log.appender.append_as_leader(valid(data), now_ms=NOW_MS), Appended)
        log.advance_high_watermark(log.sync())
        records = read_all(log)
    await world.close()
    state = fill_copies(disk, random)
    await fill_metadata(disk, topics["orders"].id)
    new = MirroredTopic(name="new", id=topic_id_text(topics["new"].id), partitions=2, configs={})
    begin_promotion(
        disk,
        "/a",
        Promotion(
            promoted_ms=NOW_MS,
            standby="standby",
            source="source:9092",
            forced=False,
            epoch=EPOCH,
            missing=[],
            unknown_topics=[new],
        ),
    )
    return Standby(disk, topics["orders"].id, new, records, state)


async def fill_metadata(disk: MemoryFileSystem, orders: uuid.UUID) -> None:
    make_durably(disk, "/a/standby")
    store = await EmbeddedMetadataStore.open(disk, "/a/standby/metadata", SETTINGS)
    puts = [
        Put(key=TOPICS + "orders", value=topic_value(orders, 2, {"cleanup.policy": "compact"})),
        Put(key=TOPICS + "late", value=topic_value(LATE_ID, 3, {})),
        Put(key=TOPICS + OFFSETS_TOPIC, value=topic_value(OFFSETS_ID, 2, {})),
        Put(key=NEXT_PRODUCER_ID, value="7000"),
    ]
    await store.txn((), puts)
    await store.close()


def fill_copies(disk: MemoryFileSystem, random: Random) -> State:
    """Copy a coordinator's log into the standby's directory, with a checkpoint in half of the cases."""
    leader = CheckpointedLog()
    for _ in range(10):
        leader.play(Commit(random.choice("ab"), (random.randrange(3),)))
    folder = f"/a/standby/{topic_directory(OFFSETS_TOPIC, OFFSETS_ID)}"
    make_durably(disk, folder)
    its = LogIdentity(
        topic_partition=TopicPartition(OFFSETS_TOPIC, 0),
        topic_id=OFFSETS_ID,
        directory=f"{folder}/0",
        directory_id="",
        hash_key=b"x" * 16,
    )
    copy = PartitionCopy(disk, its, TopicCheckpoints(has_commits=True), now_ms=lambda: NOW_MS)

    def append(data: bytes) -> int:
        copy.append(memoryview(data))
        copy.sync()
        return copy.end

    feed_log(leader.log, Offset(0), leader.log.high_watermark, append)
    if random.random() < 0.5:
        made = copy.make_checkpoint(copy.order())
        assert made is not None
        copy.made(made)
    assert copy.end == leader.log.high_watermark
    copy.close()
    return leader.state()


async def finish(disk: FileSystem) -> None:
    """Start on a disk up to the end of what had begun there."""
    executor = Executor("upkeep", threads=1)
    found = await taking_over(disk, DIRECTORIES, "/a", executor, is_standby=True)
    promoted = found.promoted
    term_min = 1 if promoted is None else promoted.term_min
    meta = read_meta_properties(disk, "/a")
    assert meta is not None
    stores = await open_stores(disk, "/a", SETTINGS, term_min=term_min)
    if found.rejoined is not None:
        await found.rejoined.settle_stores(stores, NODE_CONFIGS)
    if promoted is not None:
        assert stores.cluster.term >= EPOCH + EPOCH_STEP
        await promoted.settle_stores(stores, meta.directory_id)
    await stores.close()
    if promoted is not None:
        await executor.run(end_promotion, disk, "/a", promoted.promotion)
    executor.close()


async def check_promoted(expected: Standby, disk: MemoryFileSystem) -> None:
    await finish(disk)
    # A power cut right after changes nothing.
    disk = disk.after_crash(Loss.EVERYTHING, Random(0))
    assert not disk.exists("/a/standby")
    assert disk.exists(f"/a/metadata.before.{NOW_MS}")
    world = await open_world(disk, ",".join(DIRECTORIES))
    try:
        await check_topics(expected, world)
        assert all(each.leader_epoch > EPOCH + EPOCH_STEP for each in world.directories)
        ids = await world.store.get(NEXT_PRODUCER_ID)
        assert ids is not None
        assert int(ids.value) == 7000 + PRODUCER_IDS_SKIPPED
    finally:
        await world.close()


async def check_topics(expected: Standby, world: World) -> None:
    found = {topic.name: topic for topic in world.topics.all()}
    assert {name: topic.id for name, topic in found.items()} == {
        "orders": expected.orders,
        "late": LATE_ID,
        "new": found["new"].id,
        OFFSETS_TOPIC: OFFSETS_ID,
    }
    counts = {name: len(topic.logs()) for name, topic in found.items()}
    assert counts == {"orders": 2, "late": 3, "new": 2, OFFSETS_TOPIC: 2}, "a log is offline"
    assert not any(topic.config.is_mirror for topic in found.values())
    assert topic_id_text(found["new"].id) == expected.new.id
    assert read_all(found["orders"].logs()[0]) == expected.records
    assert state_in(found[OFFSETS_TOPIC].logs()[0]) == expected.state


def state_in(log: PartitionLog) -> State:
    scan, _ = load_state(log, log.high_watermark, new_scan)
    return state_of(scan)


async def sweep(
    disk: MemoryFileSystem,
    check: Callable[[MemoryFileSystem], Awaitable[None]],
    *,
    seed: int,
) -> int:
    """Finish on a disk, and on what a crash at each operation of that leaves. Returns how many."""
    random, left = Random(seed), list[tuple[MemoryFileSystem, str]]()

    def crash(action: str, path: str) -> None:
        for loss in (Loss.TORN, random.choice(tuple(Loss))):
            left.append((disk.after_crash(loss, random), f"{loss.name} after {action} {path}"))

    disk.on_operation = crash
    await finish(disk)
    disk.on_operation = None
    for each, what in left:
        try:
            await check(each)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {what}") from error
    return len(left)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_interrupts_a_promotion_the_next_start_finishes_it(seed: int) -> None:
    expected = await standby(seed)

    async def check(disk: MemoryFileSystem) -> None:
        await check_promoted(expected, disk)

    assert await sweep(expected.disk, check, seed=seed) > 100


async def test_whatever_interrupts_a_rejoin_the_next_start_finishes_it() -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, ",".join(DIRECTORIES))
    orders = await world.create("orders", 2)
    offsets = await world.create(OFFSETS_TOPIC, 2)
    log = orders.logs()[0]
    assert isinstance(
        log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=NOW_MS), Appended
    )
    log.advance_high_watermark(log.sync())
    records = read_all(log)
    await world.node_store.txn(
        (), [Put(key=NODE_CONFIGS, value='{"broker.fenced.by":"x","a":"1"}')]
    )
    await world.close()
    begin_rejoin(disk, "/a")
    make_durably(disk, "/a/standby")
    folder = topic_directory(OFFSETS_TOPIC, offsets.id)

    async def check(left: MemoryFileSystem) -> None:
        await finish(left)
        left = left.after_crash(Loss.EVERYTHING, Random(0))
        aside = [left.exists(f"{each}/{folder}.before") for each in DIRECTORIES]
        assert any(aside)
        found = await open_world(left, ",".join(DIRECTORIES))
        (topic,) = found.topics.all()
        assert topic.overrides[LINK] == STANDBY_LINK
        assert topic.overrides[SOURCE_ID] == topic_id_text(orders.id)
        assert read_all(topic.logs()[0]) == records
        properties = await found.node_store.get(NODE_CONFIGS)
        assert properties is not None
        assert properties.value == '{"a":"1"}'
        await found.close()

    assert await sweep(disk, check, seed=1) > 20


async def test_the_sweep_catches_metadata_that_comes_before_the_logs_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, exchange = install_module._write_topic, install_module._exchange_metadata
    copy_metadata = install_module._copy_metadata

    def early(fs: FileSystem, directory: str, topic: object) -> list[str]:
        copy_metadata(fs, directory, f"{directory}/standby/metadata")
        exchange(fs, directory, f"{directory}/metadata.before.{NOW_MS}")
        return write(fs, directory, topic)  # type: ignore[arg-type]

    monkeypatch.setattr(install_module, "_write_topic", early)
    monkeypatch.setattr(install_module, "_copy_metadata", lambda *_: None)
    monkeypatch.setattr(install_module, "_exchange_metadata", lambda *_: None)
    expected = await standby(0)

    async def check(disk: MemoryFileSystem) -> None:
        await check_promoted(expected, disk)

    with pytest.raises(AssertionError):
        await sweep(expected.disk, check, seed=0)


async def test_the_sweep_catches_epochs_that_are_not_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(install_module, "raise_start_counter", lambda *_: None)
    expected = await standby(0)
    with pytest.raises(AssertionError):
        await check_promoted(expected, expected.disk)
