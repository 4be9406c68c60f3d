"""Clients of two brokers of which one takes over from the other: each continues by itself, and keeps a
ledger of what was acknowledged.

`hold` lets a client finish what it has begun; then its ledger is final until `go_on`.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

SECONDS_MAX = 60.0
PATIENCE_SECONDS = 20.0
"""How long one call to a library may take; then the client is made once more, as a program that starts
again."""
Place = tuple[str, int]

COMMON: dict[str, Any] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 2,
}


FAILURES = (KafkaException, SystemError)
"""After a fatal error the library may call back while this error is already raised, and Python then
raises SystemError: the callback has not run."""


class Client:
    """A thread that takes one step after the other, and is made once more if one fails."""

    def __init__(self, servers: str, name: str) -> None:
        self._common = {**COMMON, "bootstrap.servers": servers, "client.id": name}
        self.name = name
        self.steps = 0
        """Steps that have succeeded."""
        self.troubles: list[str] = []
        self._is_ending, self._is_held = threading.Event(), threading.Event()
        self._rests = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self) -> None:
        """Finish what has begun, and take no step until `go_on`."""
        self._is_held.set()
        assert self._rests.wait(SECONDS_MAX), f"it does not rest: {self}"

    def go_on(self) -> None:
        self._rests.clear()
        self._is_held.clear()

    def __str__(self) -> str:
        """Where it is, and what went wrong last, for messages."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        where = "".join(traceback.format_stack(frame)[-3:]) if frame else "ended"
        return f"{self.name}: {self.troubles[-5:]}\n{where}"

    def end(self) -> None:
        self._is_ending.set()
        self._thread.join(SECONDS_MAX)

    def _run(self) -> None:
        self.open()
        while not self._is_ending.is_set():
            try:
                if self._is_held.is_set():
                    self.rest()
                    self._rests.set()
                    while self._is_held.is_set() and not self._is_ending.is_set():
                        self._pause(0.005)
                elif self.step():
                    self.steps += 1
            except FAILURES as error:
                self.troubles.append(str(error))
                self._reopen()
        with suppress(*FAILURES):
            self.close()

    def _reopen(self) -> None:
        with suppress(*FAILURES):
            self.close()
        while not self._is_ending.is_set():
            try:
                return self.open()
            except KafkaException as error:
                self.troubles.append(str(error))
                self._pause(0.1)
        return None

    def _pause(self, seconds: float) -> None:
        """Rest between two looks at what others do; an end of the client ends it."""
        self._is_ending.wait(seconds)

    def _sound(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages that are no errors; notes the errors."""
        self.troubles += [str(each.error()) for each in messages if each.error() is not None]
        return [each for each in messages if each.error() is None]

    def open(self) -> None:
        """Make the clients of the library."""

    def step(self) -> bool:
        """Returns whether there was something to do. May raise KafkaException."""
        raise NotImplementedError

    def rest(self) -> None:
        """Wait until everything that has begun has an outcome. May raise KafkaException."""

    def close(self) -> None:
        """Close the clients of the library."""


@dataclass(slots=True)
class Produced:
    """What a producer has sent to one topic."""

    acknowledged: dict[tuple[int, int], tuple[bytes, bytes | None]] = field(default_factory=dict)
    """Key and value by partition and offset."""
    uncertain: set[tuple[bytes, bytes | None]] = field(default_factory=set)
    """Those that ended with an error: they may be there, once."""


class Writer(Client):
    """Writes numbers with an idempotent producer. Every number is sent once."""

    def __init__(self, servers: str, topic: str, *, partitions: int, keys: int, seed: int) -> None:
        super().__init__(servers, f"writer of {topic}")
        self.topic, self.produced = topic, Produced()
        self._partitions, self._keys = partitions, keys
        self._random = random.Random(seed)
        self._number = 0
        self._producer: Producer

    def open(self) -> None:
        self._producer = Producer(
            {
                **self._common,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": int(SECONDS_MAX * 1000),
            }
        )

    def step(self) -> bool:
        if len(self._producer) < 100:
            for _ in range(self._random.randrange(1, 8)):
                self._send()
        before = len(self.produced.acknowledged)
        self._producer.poll(0.01)
        return len(self.produced.acknowledged) > before

    def rest(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0, self.name

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)

    def _send(self) -> None:
        self._number += 1
        key = b"k%d" % (self._number % self._keys)
        is_tombstone = self._keys < 100 and self._random.random() < 0.2
        value = None if is_tombstone else b"%d" % self._number
        self._producer.produce(
            self.topic,
            value,
            key,
            partition=self._number % self._keys % self._partitions,
            on_delivery=partial(self._delivered, (key, value)),
        )

    def _delivered(
        self, record: tuple[bytes, bytes | None], error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.produced.acknowledged[partition, offset] = record
        else:
            self.produced.uncertain.add(record)
            self.troubles.append(str(error))


class Copier(Client):
    """Copies records of one topic into another one exactly once: reads, writes and commits in
    transactions."""

    def __init__(
        self, servers: str, source: str, target: str, *, partitions: int, seed: int
    ) -> None:
        super().__init__(servers, f"copier to {target}")
        self.source, self.target, self.group = source, target, f"copier to {target}"
        self.aborted, self.begun = set[str](), 0
        """The names of transactions that were aborted before anyone asked for their commit."""
        self._places = [TopicPartition(source, number) for number in range(partitions)]
        self._partitions = partitions
        self._random = random.Random(seed)
        self._producer: Producer
        self._consumer: Consumer

    def open(self) -> None:
        self._producer = Producer(
            {
                **self._common,
                "transactional.id": self.group,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 1,
            }
        )
        self._producer.init_transactions(PATIENCE_SECONDS)
        self._consumer = Consumer(
            {
                **self._common,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )
        self._rewind()

    def step(self) -> bool:
        found = self._sound(self._consumer.consume(20, 0.05))
        if not found:
            return False
        self.begun += 1
        name = f"{self.group}/{self.begun}".replace(" ", "-")
        is_aborted = self._random.random() < 0.15
        if is_aborted:
            self.aborted.add(name)
        self._producer.begin_transaction()
        for each in found:
            value = f"{name} {each.partition()} {each.offset()}"
            partition = self._random.randrange(self._partitions)
            self._producer.produce(self.target, value, each.key(), partition=partition)
        ends = {each.partition(): (each.offset() or 0) + 1 for each in found}
        places = [TopicPartition(self.source, *place) for place in ends.items()]
        self._send_offsets(self._producer, places)
        if is_aborted:
            self._producer.abort_transaction(PATIENCE_SECONDS)
            self._rewind()
        else:
            self._producer.commit_transaction(PATIENCE_SECONDS)
        return True

    def _send_offsets(self, producer: Producer, places: list[TopicPartition]) -> None:
        """Send the offsets to the transaction, or give the producer up.

        librdkafka 2.16 may wait for ever, whatever the time-out is, if the group's coordinator is gone
        (its issue 5511). A program would be started again then.
        """
        group, seconds = self._consumer.consumer_group_metadata(), PATIENCE_SECONDS / 2
        troubles = list[KafkaException]()

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(places, group, seconds)
            except KafkaException as error:
                troubles.append(error)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        sending.join(1.5 * seconds)
        if sending.is_alive():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if troubles:
            raise troubles[0]

    def close(self) -> None:
        self._consumer.close()
        # Not `purge`: that is refused within a transaction.
        self._producer.flush(0)

    def _rewind(self) -> None:
        """Continue from the committed offsets."""
        found = self._consumer.committed(self._places, PATIENCE_SECONDS)
        self._consumer.assign(
            [TopicPartition(each.topic, each.partition, max(each.offset, 0)) for each in found]
        )


class Straggler(Client):
    """Begins transactions, one after the other, and leaves each open for as long as it can."""

    VALUE = b"never committed"

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(servers, f"straggler in {topic}")
        self.transactional_id = self.name
        self._topic = topic
        self._producer: Producer | None = None
        self.is_open = False

    def step(self) -> bool:
        if not self.is_open:
            self._begin()
            self.is_open = True
            return True
        self._pause(0.05)
        return False

    def _begin(self) -> None:
        producer = Producer(
            {
                **self._common,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": 600_000,
            }
        )
        producer.init_transactions(PATIENCE_SECONDS)
        producer.begin_transaction()
        producer.produce(self._topic, self.VALUE, partition=0)
        if producer.flush(PATIENCE_SECONDS):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._producer = producer

    def commit(self) -> str:
        """Try to commit what was left open, while it is held. Returns why that failed; empty if not."""
        assert self._producer is not None
        try:
            self._producer.commit_transaction(PATIENCE_SECONDS)
        except KafkaException as error:
            return str(error)
        finally:
            self.is_open = False
        return ""


class Reader(Client):
    """A member of a group that reads a topic, and commits what it has handled."""

    def __init__(self, servers: str, topic: str, *, protocol: str) -> None:
        super().__init__(servers, f"{protocol} reader of {topic}")
        self.group, self.topic = self.name, topic
        self.handled: dict[int, dict[int, bytes]] = defaultdict(dict)
        """The values by partition and offset."""
        self.committed: dict[int, int] = {}
        """The last offset of each partition whose commit was acknowledged."""
        self.uncertain: dict[int, set[int]] = defaultdict(set)
        """Offsets whose commit ended with an error since then."""
        self._protocol = protocol
        self._consumer: Consumer

    def open(self) -> None:
        properties = {
            **self._common,
            "group.id": self.group,
            "group.protocol": self._protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
        if self._protocol == "classic":
            properties |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self._consumer = Consumer(properties)
        self._consumer.subscribe([self.topic])

    def step(self) -> bool:
        found = self._sound(self._consumer.consume(50, 0.05))
        for each in found:
            partition, offset, value = each.partition(), each.offset(), each.value()
            assert partition is not None
            assert offset is not None
            self.handled[partition][offset] = value or b""
        ends = {each.partition() or 0: (each.offset() or 0) + 1 for each in found}
        if ends:
            self._commit(ends)
        return bool(ends)

    def _commit(self, ends: dict[int, int]) -> None:
        places = [TopicPartition(self.topic, *place) for place in ends.items()]
        for partition, end in ends.items():
            self.uncertain[partition].add(end)
        self._consumer.commit(offsets=places, asynchronous=False)
        for partition, end in ends.items():
            self.committed[partition] = end
            self.uncertain[partition].clear()

    def close(self) -> None:
        self._consumer.close()


class Committer(Client):
    """Commits offsets of many groups without members, each once in a while."""

    GROUPS = 40

    def __init__(self, servers: str, topic: str, *, seed: int) -> None:
        super().__init__(servers, f"committer of {topic}")
        self.topic = topic
        self.committed: dict[str, int] = {}
        self.uncertain: dict[str, set[int]] = defaultdict(set)
        self.ever: dict[str, set[int]] = defaultdict(set)
        """All offsets whose commit was tried."""
        self.bound = 0
        """Offsets up to here may be committed."""
        self._random = random.Random(seed)
        self._consumer: Consumer | None = None

    def groups(self) -> Sequence[str]:
        return [f"{self.name} {number}" for number in range(self.GROUPS)]

    def step(self) -> bool:
        if not self.bound:
            self._pause(0.01)
            return False
        group, offset = (
            self._random.choice(self.groups()),
            self._random.randrange(1, self.bound + 1),
        )
        self.uncertain[group].add(offset)
        self.ever[group].add(offset)
        self._commit(group, TopicPartition(self.topic, 0, offset))
        self.committed[group] = offset
        self.uncertain[group].clear()
        return True

    def _commit(self, group: str, place: TopicPartition) -> None:
        """Commit an offset. The library's own synchronous commit may wait for ever where the
        coordinator has moved.

        Raises:
            KafkaException: it failed, or is not done within PATIENCE_SECONDS.
        """
        errors: list[KafkaError | None] = []

        def done(error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
            errors.append(error or next((each.error for each in places if each.error), None))

        with self._consumer_of(group, done) as consumer:
            consumer.commit(offsets=[place], asynchronous=True)
            deadline_s = time.monotonic() + PATIENCE_SECONDS
            while not errors:
                consumer.poll(0.05)
                if time.monotonic() > deadline_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if errors[0] is not None:
            raise KafkaException(errors[0])

    @contextmanager
    def _consumer_of(
        self, group: str, on_commit: Callable[[KafkaError | None, Sequence[TopicPartition]], None]
    ) -> Iterator[Consumer]:
        own = {"group.id": group, "enable.auto.commit": False, "on_commit": on_commit}
        consumer = Consumer({**self._common, **own})
        try:
            yield consumer
        finally:
            consumer.close()
