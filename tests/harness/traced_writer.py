"""Writes traced records in five codecs, within transactions and without, across kills of the broker."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.harness.clients import CODECS, produce_when_there_is_room
from tests.harness.keyed_writer import SECONDS_MAX, insist, settings
from tests.harness.traced_records import ABORTED, COMMITTED, START_MS, Ledger, TracedTopic

LOOK_SECONDS = 0.02
RECORDS_A_BATCH_MAX = 100
IN_TRANSACTIONS = 0.6
COMMITTED_SHARE = 0.7
INTERRUPTED_SHARE = 0.3
"""So many transactions have records of another producer between their own."""


class TracedWriter:
    """One producer of each kind, used in turn by a thread: rounds follow one another, each of one topic.

    Writes up to the number that `allow` names, and no further.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[TracedTopic],
        ledger: Ledger,
        *,
        round_max: int,
        seed: int,
    ) -> None:
        """
        Args:
            round_max: the most records of a round, or of a part of a transaction.
        """
        # Constant after construction
        self._topics = topics
        self._ledger = ledger
        self._round_max = round_max
        self._choices = random.Random(seed)
        self._plain = [_Kind(bootstrap, codec) for codec in CODECS]
        self._transactional = [_Kind(bootstrap, codec, "writer") for codec in CODECS]
        self._thread = ThreadPoolExecutor(1, "writer")
        # State
        self._allowed = 0
        self._stopped = threading.Event()
        self._running: Future[None] | None = None
        self._refusals: list[KafkaError] = []

    def __enter__(self) -> Self:
        self._running = self._thread.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._allowed = 0
        self._stopped.set()
        self._thread.shutdown()

    def allow(self, end: int) -> None:
        """Let it write the records below this number."""
        self._allowed = end

    def has_written(self, end: int) -> bool:
        """Returns whether it has written so far. Raises the thread's error, if any."""
        assert self._running is not None
        if self._running.done():
            self._running.result()
        return self._ledger.count >= end

    def finish(self) -> None:
        """Wait until everything is written and acknowledged. Raises the thread's error, if any."""
        self._stopped.set()
        assert self._running is not None
        self._running.result()

    def _run(self) -> None:
        for each in self._transactional:
            insist(each.producer, partial(each.producer.init_transactions, SECONDS_MAX))
        while not self._stopped.is_set():
            while self._ledger.count < self._allowed:
                self._round()
            self._stopped.wait(LOOK_SECONDS)

    def _round(self) -> None:
        if self._choices.random() < IN_TRANSACTIONS:
            self._transact(self._choices.choice(self._transactional))
        else:
            self._write_plain()

    def _write_plain(self) -> None:
        kind = self._choices.choice(self._plain)
        first, end = self._send(kind)
        assert not self._refusals, self._refusals[0]
        self._ledger.decided(first, end, COMMITTED)

    def _transact(self, kind: _Kind) -> None:
        producer = kind.producer
        producer.begin_transaction()
        sent = [self._send(kind)]
        if self._choices.random() < INTERRUPTED_SHARE and not self._refusals:
            self._write_plain()
            sent.append(self._send(kind))
        is_committed = self._choices.random() < COMMITTED_SHARE and not self._refusals
        self._refusals.clear()
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        is_committed = insist(producer, lambda: end(SECONDS_MAX)) and is_committed
        for first, last in sent:
            self._ledger.decided(first, last, COMMITTED if is_committed else ABORTED)

    def _send(self, kind: _Kind) -> tuple[int, int]:
        """Write a part of a round. Returns its first number, and the number after its last one."""
        ledger, first = self._ledger, self._ledger.count
        left = self._allowed - first
        number = self._choices.randrange(len(self._topics))
        topic = self._topics[number]
        kind.learn_partitions(topic)
        for _ in range(min(self._choices.randint(1, self._round_max), left)):
            self._send_one(kind.producer, number, self._choices.randrange(topic.partitions))
        unacknowledged = kind.producer.flush(SECONDS_MAX)
        assert unacknowledged == 0, f"{unacknowledged} records were not acknowledged in time"
        return first, ledger.count

    def _send_one(self, producer: Producer, topic: int, partition: int) -> None:
        content = self._ledger.content(self._ledger.count)
        number = self._ledger.sent(topic, partition, content)
        record = {
            "key": content.key,
            "value": content.value,
            "headers": content.headers,
            "timestamp": START_MS + number,
            "partition": partition,
            "on_delivery": self._delivered,
        }
        produce_when_there_is_room(producer, self._topics[topic].name, **record)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refusals.append(error)
            return
        _, timestamp = message.timestamp()
        offset = message.offset()
        assert offset is not None
        self._ledger.offsets[timestamp - START_MS] = offset


class _Kind:
    """A producer with a codec, with or without transactions."""

    def __init__(self, bootstrap: str, codec: str, transactional_id: str = "") -> None:
        of_kind: Mapping[str, Any] = {
            "compression.type": codec,
            "batch.num.messages": RECORDS_A_BATCH_MAX,
        }
        if transactional_id:
            of_kind = {**of_kind, "transactional.id": f"{transactional_id}-{codec}"}
        self.producer = Producer({**settings(bootstrap), **of_kind})
        self._known: dict[str, int] = {}

    def learn_partitions(self, topic: TracedTopic) -> None:
        """Wait until the producer knows all partitions of a topic."""
        deadline_s = time.monotonic() + SECONDS_MAX
        while self._known.get(topic.name, 0) < topic.partitions:
            try:
                found = self.producer.list_topics(topic.name, timeout=SECONDS_MAX)
            except KafkaException:
                # It fails at once if the broker is killed while it is asked.
                if time.monotonic() > deadline_s:
                    raise
                continue
            self._known[topic.name] = len(found.topics[topic.name].partitions)
