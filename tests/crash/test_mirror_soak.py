"""Mirrors follow a source through everything at once, and end with what each side's compaction may keep.

Records come in five codecs, within transactions that are committed or aborted, with tombstones.
Partitions are added and properties change; both sides are compacted, at different times and speeds;
source and mirror are killed in turn, and the network between them is slow, silent, half closed or reset.

`KOMPAKT_MIRROR_RECORDS` sets how many records there are, `KOMPAKT_MIRROR_SOAK_KILLS` how many kills;
`KOMPAKT_MIRROR_SOAK_SEED` repeats the choices.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, repeat
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from pipeline.spark.jars import JarsUnavailable
from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import CODECS
from tests.harness.faulty_network import Trouble
from tests.harness.group_run import until
from tests.harness.kafka_source import running_kafka
from tests.harness.mirror_scene import (
    COMPACTED,
    EAGER,
    FULL,
    LINKS,
    MirrorScene,
    Way,
    way_to_source,
)
from tests.harness.traced_logs import (
    FoundRecords,
    check_batches,
    check_cleaned,
    check_kept,
    found_in,
    kafka_directory,
    kompakt_directory,
)
from tests.harness.traced_records import START_MS, Columns, Flags, Ledger, TracedTopic
from tests.harness.traced_writer import TracedWriter
from tests.harness.transaction_reader import confluent_consumer
from tests.harness.typed_commands import TypedCommands
from tests.harness.verification import errors_in

IS_SOAK = "KOMPAKT_SOAK" in os.environ
RECORDS = int(os.environ.get("KOMPAKT_MIRROR_RECORDS", "5000000" if IS_SOAK else "100000"))
KILLS = int(os.environ.get("KOMPAKT_MIRROR_SOAK_KILLS", "200" if IS_SOAK else "5"))
RECORDS_OF_KAFKA, KILLS_BESIDE_KAFKA = RECORDS // 4, max(KILLS // 2, 1)
RECORDS_A_KEY = 100
ROUND_MAX = 1_000
PARTITIONS_ADDED = 4

TROUBLES = (Trouble.RESET, Trouble.STALL, Trouble.HALF_CLOSE, Trouble.DELAY)
RARE = (*TROUBLES * 4, Trouble.LOSS) if IS_SOAK else TROUBLES
"""A connection that has gone silent is given up after a minute."""
KAFKA_KEEPS_MS = 120_000
"""How long Apache Kafka keeps tombstones: longer than a mirror lags, which it does not know of."""
OF_KOMPAKT = {
    "delete.retention.ms": "500",
    "segment.ms": "400",
    "segment.bytes": str(1 << 20),
}
OF_KAFKA = {
    "delete.retention.ms": str(KAFKA_KEEPS_MS),
    # A segment's age counts by records' and markers' timestamps, of which only markers have the time.
    "internal.segment.bytes": "30000",
}

RATE = "log.cleaner.io.max.bytes.per.second"
RATES = [str(each * RECORDS) for each in (10, 50, 10_000)]
"""How fast a broker cleans, one of them for each of its lives."""
SOURCE = {"log.cleaner.backoff.ms": "50"}
MIRROR = {"log.cleaner.backoff.ms": "700"}


@pytest.mark.crash
def test_mirrors_end_with_what_compaction_may_keep_whatever_is_killed_and_however_the_network_fails(
    tmp_path: Path,
) -> None:
    choices = seeded(tmp_path)
    source = BrokerProcess(tmp_path / "source", SOURCE)
    mirror = BrokerProcess(tmp_path / "mirror", MIRROR)
    with way_to_source(choices) as way:
        source.port = way.port
        source.overrides |= way.listeners
        with source, mirror:
            scene = MirrorScene(source.bootstrap_servers, way, mirror)
            scene.create(OF_KOMPAKT)
            ledger = ledger_of(RECORDS, choices)
            victims = cycle((source, mirror))
            Course(scene, ledger, choices, victims, RARE).run(KILLS)
            columns = ledger.columns()
            clean_everything(scene, source, mirror)
            check_at_rest(scene, columns)
    theirs = read_files(source, scene, ledger)
    ours = read_files(mirror, scene, ledger)
    check_files(scene, columns, theirs, ours)
    for topic in (FULL, COMPACTED):
        check_cleaned(columns, scene.number_of(topic), theirs.are_there)
    check_cleaned(columns, scene.number_of(COMPACTED), ours.are_there)
    print(report(scene, columns, theirs, ours))  # noqa: T201  a soak keeps it


@pytest.mark.conformance
@pytest.mark.crash
def test_mirrors_of_apache_kafka_end_with_what_compaction_may_keep_however_the_network_fails(
    tmp_path: Path,
) -> None:
    choices = seeded(tmp_path)
    mirror = BrokerProcess(tmp_path / "mirror", MIRROR)
    with way_to_source(choices) as way, kafka_or_skip(tmp_path / "kafka", way) as kafka, mirror:
        scene = MirrorScene(kafka, way, mirror)
        scene.create(OF_KAFKA)
        ledger = ledger_of(RECORDS_OF_KAFKA, choices)
        Course(scene, ledger, choices, repeat(mirror), TROUBLES).run(KILLS_BESIDE_KAFKA)
        columns = ledger.columns()
        for topic in scene.compacted:
            # The last change may have let Kafka's cleaner rest.
            scene.alter(topic, {**EAGER, "min.compaction.lag.ms": "0"})
        until("both cleaners have worked", partial(are_compacted, scene, columns), str)
        check_at_rest(scene, columns)
    theirs = found_in(kafka_directory(tmp_path / "kafka" / "data"), scene.topics, ledger)
    ours = read_files(mirror, scene, ledger)
    check_files(scene, columns, theirs, ours)
    print(report(scene, columns, theirs, ours))  # noqa: T201  a soak keeps it


def ledger_of(records: int, choices: random.Random) -> Ledger:
    """Returns an empty ledger."""
    return Ledger(records, max(records // RECORDS_A_KEY, 1), choices.randrange(1 << 32))


def seeded(folder: Path) -> random.Random:
    """Returns the choices of this run, and notes their seed."""
    seed = int(os.environ.get("KOMPAKT_MIRROR_SOAK_SEED", random.randrange(1 << 16)))
    (folder / "seed").write_text(f"KOMPAKT_MIRROR_SOAK_SEED={seed}")
    return random.Random(seed)


@contextmanager
def kafka_or_skip(folder: Path, way: Way) -> Iterator[str]:
    """Run an Apache Kafka, or skip the test with what to install."""
    with ExitStack() as stack:
        try:
            bootstrap = stack.enter_context(running_kafka(folder, way.port, way.listeners))
        except JarsUnavailable as missing:
            pytest.skip(str(missing))
        yield bootstrap


# -------------------------------------------------------------------- what happens


class Course:
    """Everything that happens while records are written: as many steps as brokers are killed."""

    def __init__(
        self,
        scene: MirrorScene,
        ledger: Ledger,
        choices: random.Random,
        victims: Iterator[BrokerProcess],
        troubles: Sequence[Trouble],
    ) -> None:
        """
        Args:
            victims: which broker is killed next.
            troubles: how the network fails, in turn.
        """
        self._scene = scene
        self._ledger = ledger
        self._choices = choices
        self._victims = victims
        self._troubles = cycle(troubles)

    def run(self, kills: int) -> None:
        """Write as many records as the ledger takes."""
        scene, count = self._scene, self._ledger.records_max
        seed = self._choices.randrange(1 << 32)
        growing = {kills * each // PARTITIONS_ADDED for each in range(PARTITIONS_ADDED)}
        with TracedWriter(
            scene.bootstrap, scene.topics, self._ledger, round_max=ROUND_MAX, seed=seed
        ) as writer:
            for number in range(kills):
                if number in growing:
                    scene.add_partition(self._choices)
                self._step(writer, count * number // kills, count * (number + 1) // kills)
            writer.finish()

    def _step(self, writer: TracedWriter, start: int, end: int) -> None:
        """Write from one number up to another, while the network fails once and a broker is killed."""
        scene, is_killed_early = self._scene, self._choices.random() < 0.5
        known = scene.synced_ends()
        writer.allow(end)
        with network_fails(scene, next(self._troubles)):
            scene.alter_something(self._choices)
            moment = self._choices.randrange(start, end)
            until("the writer goes on", partial(writer.has_written, moment), str)
            if is_killed_early:
                self._kill()
        if not is_killed_early:
            self._kill()
        until("the step is written", partial(writer.has_written, end), str)
        ends = scene.ends()
        scene.wait_until_beyond({at: ends[at] for at in known})

    def _kill(self) -> None:
        """Kill the next broker, and start it with a cleaner of another speed."""
        broker = next(self._victims)
        broker.kill()
        broker.overrides[RATE] = self._choices.choice(RATES)
        broker.start()


@contextmanager
def network_fails(scene: MirrorScene, trouble: Trouble) -> Iterator[None]:
    """Let the network fail within the context; a connection has met it before."""
    network = scene.network
    with network.trouble(trouble):
        met = network.met[trouble]
        until(f"{trouble} is met", lambda: network.met[trouble] > met, str)
        yield


def clean_everything(scene: MirrorScene, source: BrokerProcess, mirror: BrokerProcess) -> None:
    """Wait until both cleaners have nothing left to do, except where a mirror is not compacted."""
    for broker in (source, mirror):
        TypedCommands(broker).told("configs", "set", "--broker", f"{RATE}={RATES[-1]}")
    for topic in scene.compacted:
        scene.alter(topic, {**EAGER, "min.compaction.lag.ms": "0"})
    with network_fails(scene, Trouble.RESET):
        pass  # Links that connect again look at the source's properties at once.
    scene.wait_until_level()
    scene.wait_until_configured()
    for topic in scene.compacted:
        wait_until_clean(f"127.0.0.1:{source.http_port}", topic)
    wait_until_clean(f"127.0.0.1:{mirror.http_port}", COMPACTED)


def are_compacted(scene: MirrorScene, columns: Columns) -> bool:
    """Returns whether the source has removed records that its whole mirror has, and the other mirror has
    been compacted, too."""
    bootstraps = scene.bootstrap, scene.mirror.bootstrap_servers
    theirs, ours = (read_committed(each, scene.topics, len(columns.offsets)) for each in bootstraps)
    full, compacted = (columns.of_topic(scene.number_of(each)) for each in (FULL, COMPACTED))
    removed = (full & ours & ~theirs, compacted & columns.are_committed & ~ours)
    return all(each.any() for each in removed)


# -------------------------------------------------------------------- what must hold at rest


def check_at_rest(scene: MirrorScene, columns: Columns) -> None:
    """Check what both sides show: ends, properties, last values, and what readers find."""
    scene.wait_until_level()
    scene.wait_until_configured()
    for link in LINKS:
        found = scene.typed.shown("replica", "verify", link)
        parts = [each for topic in found["topics"] for each in topic["partitions"]]
        assert {each["verdict"] for each in parts} == {"equal"}, parts
        assert all(each["source"]["digest"] == each["mirror"]["digest"] for each in parts)
    for bootstrap in (scene.bootstrap, scene.mirror.bootstrap_servers):
        read = read_committed(bootstrap, scene.topics, len(columns.offsets))
        assert not (read & ~columns.are_committed).any(), "a reader gets aborted records"
        for number, topic in enumerate(scene.topics):
            check_kept(columns, number, read, is_compacted=topic.is_compacted)


def read_committed(bootstrap: str, topics: Sequence[TracedTopic], count: int) -> Flags:
    """Returns which numbers a consumer of committed records gets."""
    places = [
        TopicPartition(t.name, p, OFFSET_BEGINNING) for t in topics for p in range(t.partitions)
    ]
    read, ended = np.zeros(count, np.bool_), set[tuple[str, int]]()
    consumer = confluent_consumer(bootstrap)
    try:
        consumer.assign(places)
        while len(ended) < len(places):
            message = consumer.poll(60)
            assert message is not None, "nothing more to read, before the end"
            error = message.error()
            if error is None:
                read[message.timestamp()[1] - START_MS] = True
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add((str(message.topic()), message.partition() or 0))
    finally:
        consumer.close()
    return read


def check_files(
    scene: MirrorScene, columns: Columns, theirs: FoundRecords, ours: FoundRecords
) -> None:
    """Check what the stopped brokers have in their files."""
    for number, topic in enumerate(scene.topics):
        for side in (theirs, ours):
            check_kept(columns, number, side.are_there, is_compacted=topic.is_compacted)
        if topic.name != COMPACTED:
            missing = theirs.of_topic(columns, number) & ~ours.are_there
            assert not missing.any(), "the source has what its whole mirror lacks"
    check_batches(theirs, ours)
    for side in (theirs, ours):
        assert len(side.codecs) == len(CODECS)
        assert side.markers
    full = scene.number_of(FULL)
    forgotten = ours.of_topic(columns, full) & ~theirs.are_there
    assert forgotten.any(), "a mirror that is not compacted has what its source has removed"


def read_files(broker: BrokerProcess, scene: MirrorScene, ledger: Ledger) -> FoundRecords:
    """Read a stopped broker's files, which must be in order."""
    assert errors_in(ReadOnlyFileSystem(), str(broker.data_dir)) == []
    return found_in(kompakt_directory(broker.data_dir), scene.topics, ledger)


def report(scene: MirrorScene, columns: Columns, theirs: FoundRecords, ours: FoundRecords) -> str:
    """Returns what was done and seen, for people."""
    met = ", ".join(f"{count} by {kind.name}" for kind, count in scene.network.met.items())
    lines = [f"{len(columns.offsets)} records, pieces met on the network: {met}"]
    for number, topic in enumerate(scene.topics):
        written, aborted = columns.of_topic(number), columns.of_topic(number) & columns.are_aborted
        left = [side.of_topic(columns, number).sum() for side in (theirs, ours)]
        lines.append(
            f"{topic.name}: {written.sum()} written, {aborted.sum()} of them aborted;"
            f" left at the source {left[0]}, in the mirror {left[1]}"
        )
    return "\n".join(lines)
