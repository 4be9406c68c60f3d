"""A random history of topics over two log directories, and what a crash may leave of them.

Topics are created, also as mirrors, and deleted, several at a time, put aside, written to, synced,
configured, promoted and created again under the same name; the broker stops and starts. After each
operation of the disk a crash state is taken, with what must be there: it is opened later, because
opening needs the loop that the history runs on.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from server.topics.mirrors import LINK, SOURCE_ID, without_own
from server.topics.topic import OfflineLog, Topic
from server.topics.validation import NewTopic
from storage.files.paths import BEFORE, LOG, topic_id_text
from storage.log.appender import Appended
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.served_broker import NOW_MS
from tests.harness.topics_world import World, open_world

DIRECTORIES = ("/a", "/b")
SOURCE = topic_id_text(uuid.UUID(int=7))
NAMES = ("one", "two", "three")
STEPS = 40
KILLED = 0.25
"""The share of operations after which the process is killed, too."""


@dataclass(slots=True)
class Known:
    """A topic that was created, and what was written to each of its partitions."""

    id: uuid.UUID | None
    """None while its creation is under way."""
    partitions: list[list[bytes]]
    acknowledged: list[int]
    """How many records of each partition were synced."""
    grown_to: int = 0
    """How many partitions it has once the growth under way is done; 0: none is."""
    retention_ms: str = ""
    """The last configuration that was acknowledged."""
    link: str = ""
    """The link of a mirror; while it is being promoted also nothing: `link|`."""


@dataclass(slots=True)
class Expected:
    """The topics that exist, according to the answers to clients."""

    topics: dict[str, Known] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)
    """Topics whose creation or deletion was not answered yet: each is there or not, but whole."""
    put_aside: list[Known] = field(default_factory=list)
    """Topics that are no topics any longer, and whose files must be there."""


@dataclass(slots=True)
class CrashState:
    """A disk after a crash, and what must be on it."""

    disk: MemoryFileSystem
    expected: Expected
    what: str
    is_kill: bool = False
    """Whether only the process was killed, so that the disk shows more than is durable."""


class TopicWorkload:
    """One history; `states` are the crash states since they were last taken away."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.crash_random = Random(seed + 1_000_003)
        self.disk = MemoryFileSystem()
        self.expected = Expected()
        self.what = "start"
        self.states: list[CrashState] = []
        self.world: World

    async def play(self, check: Callable[[CrashState], Awaitable[None]]) -> None:
        """Live through the history; `check` is given each crash state."""
        self.world = await open_world(self.disk, ",".join(DIRECTORIES))
        self.disk.on_operation = self._crash
        steps: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.create, 8),
            (self.append, 10),
            (self.sync, 6),
            (self.grow, 3),
            (self.alter, 2),
            (self.promote, 2),
            (self.delete, 4),
            (self.put_aside, 1),
            (self.restart, 1),
            (self.crash_and_go_on, 1),
        ]
        for _ in range(STEPS):
            (step,) = self.random.choices([s for s, _ in steps], [weight for _, weight in steps])
            self.what = step.__name__
            await step()
            states, self.states = self.states, []
            for state in states:
                await check(state)
        await self.world.close()

    def _crash(self, action: str, path: str) -> None:
        for loss in (Loss.TORN, self.crash_random.choice(tuple(Loss))):
            left = self.disk.after_crash(loss, self.crash_random)
            what = f"{self.what}, {loss.name} lost after {action} {path}"
            self.states.append(CrashState(left, copy.deepcopy(self.expected), what))
        if self.crash_random.random() < KILLED:
            what = f"{self.what}, killed after {action} {path}"
            expected = copy.deepcopy(self.expected)
            self.states.append(CrashState(self.disk.after_kill(), expected, what, is_kill=True))

    # ---------------------------------------------------------------- steps

    async def create(self) -> None:
        names = self.random.sample(NAMES, self.random.randrange(1, 4))
        new = [name for name in names if name not in self.expected.topics]
        for name in new:
            count = self.random.randrange(1, 4)
            known = Known(None, [[] for _ in range(count)], [0] * count)
            known.link = self.random.choice(("", "dr"))
            self.expected.topics[name] = known
        self.expected.under_way = set(new)
        if self.random.random() < 0.6:
            # Until the history is over: until then events find logs that are not durable, or that have
            # no files.
            self.world.administration.may_settle.clear()
        if self.random.random() < 0.3:
            self.world.administration.may_make_files.clear()
        new_topics = [self._new_topic(name) for name in new]
        for topic in await self.world.topics.create_all(new_topics):
            assert isinstance(topic, Topic), topic
            self.expected.topics[topic.name].id = topic.id
        self.expected.under_way = set()
        if self.random.random() < 0.3:
            await at_rest(self.world)

    def _new_topic(self, name: str) -> NewTopic:
        known = self.expected.topics[name]
        overrides = {LINK: known.link, SOURCE_ID: SOURCE} if known.link else {}
        return NewTopic(name=name, partitions_count=len(known.partitions), overrides=overrides)

    async def grow(self) -> None:
        topic = self._any_topic()
        if topic is None or len(topic.partitions) > 3:
            return
        known, added = self.expected.topics[topic.name], self.random.randrange(1, 3)
        known.grown_to = len(topic.partitions) + added
        grown = await self.world.topics.add_partitions(topic.name, known.grown_to)
        assert isinstance(grown, Topic), grown
        known.partitions += [[] for _ in range(added)]
        known.acknowledged += [0] * added
        known.grown_to = 0

    async def delete(self) -> None:
        topics = self.world.topics.all()
        topics = self.random.sample(topics, self.random.randrange(len(topics) + 1))
        self.expected.under_way = {topic.name for topic in topics}
        assert not any(await self.world.topics.delete_all(topics))
        for topic in topics:
            del self.expected.topics[topic.name]
        self.expected.under_way = set()
        if self.random.random() < 0.5:
            await at_rest(self.world)

    async def put_aside(self) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        self.expected.under_way = {topic.name}
        assert await self.world.topics.put_aside(topic) is None
        self.expected.put_aside.append(self.expected.topics.pop(topic.name))
        self.expected.under_way = set()
        match self.random.randrange(3):
            case 0:
                await at_rest(self.world)
            case 1:
                await self._create_again(topic)
            case _:
                pass

    async def _create_again(self, topic: Topic) -> None:
        """Create a topic with its id, as a standby that copies it once more."""
        self.expected.topics[topic.name] = Known(topic.id, [[]], [0])
        self.expected.under_way = {topic.name}
        created = await self.world.topics.create(topic.name, partitions_count=1, topic_id=topic.id)
        assert isinstance(created, Topic), created
        self.expected.under_way = set()

    async def append(self) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        log = self.random.choice(topic.logs())
        value = self.random.randbytes(self.random.randrange(1, 300))
        self.expected.topics[topic.name].partitions[log.topic_partition.partition].append(value)
        appended = log.appender.append_as_leader(valid(batch_of([(b"key", value)])), now_ms=NOW_MS)
        assert isinstance(appended, Appended)
        if self.random.random() < 0.2:
            log.roll(NOW_MS)

    async def sync(self) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        log = self.random.choice(topic.logs())
        log.advance_high_watermark(log.sync())
        known = self.expected.topics[topic.name]
        known.acknowledged[log.topic_partition.partition] = log.high_watermark

    async def alter(self) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        known, value = self.expected.topics[topic.name], str(self.random.randrange(1000))
        before = known.retention_ms
        known.retention_ms = f"{before}|{value}"
        await self.world.topics.alter(topic.name, lambda old, _: {**old, "retention.ms": value})
        known.retention_ms = value

    async def promote(self) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        known = self.expected.topics[topic.name]
        known.link = f"{known.link}|"
        await self.world.topics.alter(topic.name, lambda old, _: without_own(old))
        known.link = ""

    async def restart(self) -> None:
        await self.world.close()
        for known in self.expected.topics.values():
            known.acknowledged = [len(each) for each in known.partitions]
        self.disk.on_operation = None
        await self._reopen(self.disk.after_crash(Loss.EVERYTHING, self.crash_random))

    async def crash_and_go_on(self) -> None:
        """Live on with a state that a crash has left, as a broker does."""
        await at_rest(self.world)
        await self.world.stores.close()
        await self._reopen(self.disk.after_crash(Loss.TORN, self.crash_random))
        for name, known in self.expected.topics.items():
            topic = self.world.topics.get(name)
            assert topic is not None
            for number, log in enumerate(topic.logs()):
                del known.partitions[number][log.log_end_offset :]
                known.acknowledged[number] = log.log_end_offset

    async def _reopen(self, disk: MemoryFileSystem) -> None:
        self.disk = disk
        self.world = await open_world(disk, ",".join(DIRECTORIES))
        await check_world(self.world, self.disk, self.expected)
        self.disk.on_operation = self._crash

    def _any_topic(self) -> Topic | None:
        topics = self.world.topics.all()
        return self.random.choice(topics) if topics else None


async def at_rest(world: World) -> None:
    """Wait until new logs are durable and the files of deleted topics are gone."""
    world.administration.release()
    await world.topics._settling.finish()
    await world.topics._deletion.finish()


async def check_state(state: CrashState) -> None:
    """Start twice on what a crash has left: every answer still holds.

    After a kill the power fails as soon as the start is over, before new logs are made durable.
    """
    world = await open_world(state.disk, ",".join(DIRECTORIES), not state.is_kill)
    there = contents(world)
    again = state.disk.after_crash(Loss.EVERYTHING, Random(0))
    await check_world(world, state.disk, state.expected)
    assert contents(world) == there
    await world.stores.close()
    if not state.is_kill:
        again = state.disk.after_crash(Loss.EVERYTHING, Random(0))
    world = await open_world(again, ",".join(DIRECTORIES))
    await check_world(world, again, state.expected)
    assert contents(world) == there
    await world.stores.close()


async def check_world(world: World, disk: MemoryFileSystem, expected: Expected) -> None:
    """The topics are those that must be there, whole, and no file is left of any other."""
    found = {topic.name: topic for topic in world.topics.all()}
    assert found.keys() <= expected.topics.keys(), "a deleted topic is back"
    for name, known in expected.topics.items():
        if name in found:
            check_topic(found[name], known)
        else:
            assert name in expected.under_way, f"{name} is gone"
    await at_rest(world)
    ids = {topic_id_text(topic.id) for topic in found.values()}
    for path in DIRECTORIES:
        there = {entry for entry in disk.list(path) if entry.startswith(NAMES)}
        used = {entry.split(".")[1] for entry in there if BEFORE not in entry}
        assert used <= ids, "files of a topic that is not there"
    for known in expected.put_aside:
        check_put_aside(disk, known)


def check_put_aside(disk: MemoryFileSystem, known: Known) -> None:
    """All that was acknowledged of a topic is in directories that no start uses."""
    assert known.id is not None
    end = f".{topic_id_text(known.id)}{BEFORE}"
    folders = [f"{path}/{name}" for path in DIRECTORIES for name in disk.list(path) if end in name]
    for number, acknowledged in enumerate(known.acknowledged):
        logs = [f"{each}/{number}" for each in folders if disk.exists(f"{each}/{number}")]
        kept = [
            disk.read_bytes(f"{each}/{name}")
            for each in logs
            for name in disk.list(each)
            if name.endswith(LOG)
        ]
        for value in known.partitions[number][:acknowledged]:
            assert any(value in each for each in kept), f"a record of {known.id} is gone"


def check_topic(topic: Topic, known: Known) -> None:
    """Every partition is there with all that was acknowledged, and with nothing else."""
    assert known.id in (None, topic.id)
    count = len(known.partitions)
    assert len(topic.partitions) in (count, known.grown_to or count)
    assert topic.overrides.get("retention.ms", "") in known.retention_ms.split("|")
    assert topic.config.mirror_link in known.link.split("|")
    assert topic.config.is_mirror == bool(topic.config.mirror_source_topic_id)
    added = len(topic.partitions) - count
    values_of = [*known.partitions, *([] for _ in range(added))]
    for log, values, acknowledged in zip(
        topic.partitions, values_of, [*known.acknowledged, *[0] * added], strict=True
    ):
        assert not isinstance(log, OfflineLog), log.offline_reason
        there = [record.value for record in read_all(log)]
        assert there == values[: len(there)]
        assert len(there) >= acknowledged


def contents(world: World) -> dict[tuple[str, int], list[bytes | None]]:
    """Every record of every partition."""
    return {
        (topic.name, log.topic_partition.partition): [record.value for record in read_all(log)]
        for topic in world.topics.all()
        for log in topic.logs()
    }
