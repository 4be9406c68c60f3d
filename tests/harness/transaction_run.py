"""One random history: programs consume, transform and produce while they and their broker are killed.

Feeders write `in-SEED` in transactions; every worker of a group copies its partitions into
`journal-SEED`, which keeps everything, and `table-SEED`, which is compacted all the time. When all fed
records are handled, a reader reads everything, the table is cleaned completely, and others read.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException, TopicPartition

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.transaction_history import GroupPlace, History, Outcome, Place, Snapshot
from tests.harness.transaction_plan import PARTITIONS, Event, Plan, Work
from tests.harness.transaction_process import ProgramProcess, program_command
from tests.harness.transaction_reader import confluent_consumer, read_committed

SECONDS_MAX = 300.0
OFFSETS_SECONDS_MAX = 2.0
AIM_SECONDS_MAX = 0.3
START_SECONDS_MAX = 10.0
T = TypeVar("T")
BROKER_CONFIG = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.roll.ms": "100",
    "log.roll.check.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""Broker properties for histories: the cleaner runs all the time, in its internal topics, too;
transactions cross segment rolls; and waiting times are short."""
TABLE_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "86400000",
}


class NotSettled(AssertionError):
    """A history did not come to rest in time; the message describes its state."""


@dataclass
class TransactionRun:
    """A history in progress."""

    folder: Path
    broker: BrokerProcess
    plan: Plan
    clean: Callable[[str], None]
    """Waits until a topic is clean up to its end."""
    readers: tuple[str, ...] = ("confluent-kafka",)
    """Clients that read everything at the end."""
    calm: threading.Lock = field(default_factory=threading.Lock)
    """Held to kill the broker, or to keep it alive: histories may share a broker."""
    snapshots: list[Snapshot] = field(default_factory=list)
    looks: list[dict[GroupPlace, int]] = field(default_factory=list)
    programs: list[ProgramProcess] = field(default_factory=list)

    def run(self) -> History:
        """Run the whole history."""
        self._create()
        self._begin()
        try:
            self._live()
            self._settle()
        finally:
            for program in self.programs:
                program.ask_to_end()
            for program in self.programs:
                program.stop()
        self._look()
        with self.calm:
            self.clean(self._topic("table"))
        if self.plan.events:
            # The readers also see the history as recovered after a crash.
            self._kill_the_broker()
        for client in self.readers:
            self._look(client)
        transactions = [each for program in self.programs for each in program.transactions()]
        return History(
            {each.name: each for each in transactions},
            self.snapshots,
            self.looks,
            compacted=frozenset({self._topic("table")}),
        )

    def summary(self) -> str:
        """Returns how often its programs ran and hung, and the outcomes of transactions."""
        ends = Counter(each.outcome for program in self.programs for each in program.transactions())
        lives = [program.lives for program in self.programs]
        stalls = sum(program.stalls for program in self.programs)
        return f"{lives} lives, {stalls} hung, " + ", ".join(
            f"{ends[end]} {end}" for end in Outcome
        )

    # Phases.

    def _create(self) -> None:
        configs = {"in": {}, "journal": {}, "table": TABLE_CONFIG}
        with self.calm:
            for word, config in configs.items():
                topic = self._topic(word)
                create_topic(self._bootstrap, topic, partitions=PARTITIONS, config=config)

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for number, work in enumerate(self.plan.works):
            name = f"{self.plan.seed}-{number}-{work.client}"
            program = ProgramProcess(self.folder, name, self._command(name, number, work))
            self.programs.append(program)
            program.start()

    def _live(self) -> None:
        choices = random.Random(self.plan.seed)
        self._wait(START_SECONDS_MAX, self.programs[0].has_committed)
        start_s = time.monotonic()
        for moment_s, event in self.plan.events:
            while time.monotonic() < start_s + moment_s:
                time.sleep(0.02)
                self._tend()
            self._happen(event, choices.choice(self.programs))

    def _happen(self, event: Event, victim: ProgramProcess) -> None:
        match event:
            case Event.LOOK:
                self._look()
            case Event.BROKER:
                self._kill_the_broker()
            case Event.BROKER_AT_COMMIT:
                self._committing()
                self._kill_the_broker()
            case Event.CLIENT:
                victim.restart()
            case Event.CLIENT_AT_COMMIT:
                (self._committing() or victim).restart()
            case Event.ZOMBIE:
                victim.start_beside_itself()
            case Event.ABANDON:
                self.programs[0].abandon()

    def _kill_the_broker(self) -> None:
        with self.calm:
            self.broker.kill()
            self.broker.start()

    def _committing(self) -> ProgramProcess | None:
        """Wait for a program that waits for its commit, and return it."""
        return self._wait(
            AIM_SECONDS_MAX, lambda: first(self.programs, ProgramProcess.is_committing)
        )

    def _wait(self, seconds_max: float, come: Callable[[], T | None]) -> T | None:
        """Wait until `come` returns something, at most `seconds_max`."""
        end_s = time.monotonic() + seconds_max
        while not (found := come()) and time.monotonic() < end_s:
            self._tend()
            time.sleep(0.0005)
        return found

    def _settle(self) -> None:
        """Wait until every group has handled all fed records."""
        deadline_s = time.monotonic() + SECONDS_MAX
        while not self._is_settled():
            if time.monotonic() > deadline_s:
                complaints = "\n".join(each.complaints() for each in self.programs)
                raise NotSettled(f"seed {self.plan.seed}: {self._offsets()}; {complaints}")
            self._tend()
            time.sleep(0.1)

    def _is_settled(self) -> bool:
        if not self.programs[0].is_done():
            return False
        with self.calm:
            given = read_committed(self._bootstrap, self._inputs(), "settle").records
        ends = {place: records[-1].offset + 1 for place, records in given.items() if records}
        wanted = {(group, place): end for place, end in ends.items() for group in self._groups()}
        return self._offsets() == wanted

    def _tend(self) -> None:
        for program in self.programs:
            program.tend()

    def _look(self, client: str = "confluent-kafka") -> None:
        self.looks.append(self._offsets())
        reader = f"reader {len(self.snapshots)}, {client}"
        with self.calm:
            snapshot = read_committed(self._bootstrap, self._places(), reader, client)
        self.snapshots.append(snapshot)

    # Queries.

    def _offsets(self) -> dict[GroupPlace, int]:
        """Returns the groups' committed offsets, once no open transaction may change them."""
        deadline_s = time.monotonic() + SECONDS_MAX
        found: dict[GroupPlace, int] = {}
        for group in self._groups():
            while True:
                try:
                    found |= stable_offsets(self._bootstrap, group, self._inputs())
                    break
                except KafkaException as error:
                    if time.monotonic() > deadline_s:
                        raise NotSettled(f"seed {self.plan.seed}: offsets: {error}") from error
                self._tend()
        return found

    def _groups(self) -> list[str]:
        return sorted({work.group for work in self.plan.works} - {"-"})

    def _topic(self, word: str) -> str:
        return f"{word}-{self.plan.seed}"

    def _inputs(self) -> list[Place]:
        return [(self._topic("in"), partition) for partition in range(PARTITIONS)]

    def _places(self) -> list[Place]:
        words = ("in", "journal", "table")
        return [(self._topic(word), part) for word in words for part in range(PARTITIONS)]

    @property
    def _bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    def _command(self, name: str, number: int, work: Work) -> Callable[[int], list[str]]:
        settings = {
            "transactional.id": name,
            "seed": f"{self.plan.seed * 100 + number}",
            "partitions": f"{PARTITIONS}",
            **(self._feeder() if work.group == "-" else self._worker(work)),
        }
        return lambda life: [
            *program_command(work.client),
            self._bootstrap,
            *(f"{name}={value}" for name, value in {**settings, "life": f"{life}"}.items()),
        ]

    def _feeder(self) -> Mapping[str, str]:
        return {"outputs": self._topic("in"), "transactions": "20", "timeout.ms": "2000"}

    def _worker(self, work: Work) -> Mapping[str, str]:
        inputs = (f"{self._topic('in')}:{partition}" for partition in work.partitions)
        return {
            "outputs": f"{self._topic('journal')},{self._topic('table')}",
            "group": work.group,
            "inputs": ",".join(inputs),
            **({"member": "yes"} if work.is_member else {}),
        }


def first(
    programs: Sequence[ProgramProcess], is_it: Callable[[ProgramProcess], bool]
) -> ProgramProcess | None:
    return next((program for program in programs if is_it(program)), None)


def stable_offsets(bootstrap: str, group: str, places: Sequence[Place]) -> dict[GroupPlace, int]:
    """Returns a group's committed offsets.

    Raises:
        KafkaException: an offset is in an open transaction, or the group is still loading.
    """
    consumer = confluent_consumer(bootstrap, group)
    try:
        asked = [TopicPartition(*place) for place in places]
        parts = consumer.committed(asked, OFFSETS_SECONDS_MAX)
    finally:
        consumer.close()
    return {
        (group, (part.topic, part.partition)): part.offset for part in parts if part.offset >= 0
    }
