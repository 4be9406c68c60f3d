"""A broker process whose topics have different features of the cleaner: its operator and producers."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.base.raw_protocol import produce_request
from metrics import cleaner_names
from tests.harness.asked_broker import ask, erase, undo_newest
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.damaged_segment import DamagedSegment, damage_one
from tests.harness.feature_records import FeatureRecords
from tests.harness.numbered_records import KEY_MARK, RECORDS_A_BATCH, Offsets
from tests.harness.raw_connection import RawConnection

LAST_KEY = b"the last one"
TRIES_MAX = 3
IN_FLIGHT_MAX = 5


class Site:
    """The broker, with its administration."""

    def __init__(self, path: Path) -> None:
        self.broker = BrokerProcess(path, {"log.cleaner.backoff.ms": "20"})
        self.done = Counter[str]()

    def alter(self, topic: str, **values: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        admin.incremental_alter_configs([resource])[resource].result(30)

    def produce_last(self, topic: str) -> None:
        """A log is not clean up to its end while its last record has lost."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        producer.produce(topic, key=LAST_KEY, value=b".")
        assert producer.flush(60) == 0

    def undo(self, topic: str) -> None:
        """Undo the newest pass, if one is kept, and let the cleaner do it again."""
        for _ in range(TRIES_MAX):
            with suppress(HTTPError):  # Another pass came in between.
                self.done["undos"] += undo_newest(self.broker, topic)
                break
        ask(self.broker, "POST", f"/topics/{topic}/resume")

    def erase(self, topic: str, key: int) -> int:
        """Accept the erasure of a key. Returns the offset below which its records must go."""
        erasure = erase(self.broker, topic, KEY_MARK + b"%08d" % key)
        self.done["erasures"] += 1
        return int(erasure["partitions"][0]["below"])

    def erasures_not_certified(self) -> list[Any]:
        erasures = ask(self.broker, "GET", "/erasures")["erasures"]
        assert len(erasures) == self.done["erasures"]
        return [each for each in erasures if not each["is_certified"]]

    def check_ledger(self) -> None:
        """Verify the ledger of the stopped broker, with the digests of all segments."""
        ledger = [sys.executable, "-m", "cli", "compact", "ledger", "verify"]
        subprocess.run([*ledger, "--data-dir", str(self.broker.data_dir)], check=True)

    def let_clean(self, passes: int, seconds: float) -> None:
        """Wait until so many passes have ended in this life, and not longer than so."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = samples(self.broker.metrics(), cleaner_names.PASSES.name, result="completed")
            if sum(ended) >= passes:
                return
            time.sleep(0.2)

    def damage_or_repair(
        self, topic: str, damaged: DamagedSegment | None, choices: random.Random
    ) -> DamagedSegment | None:
        """Repair what is damaged; else damage a segment of the stopped broker, and return it."""
        if damaged is not None:
            damaged.repair()
            return None
        (directory,) = self.broker.data_dir.glob(f"{topic}.*/0")
        damaged = damage_one(directory, choices)
        self.done["damaged segments"] += damaged is not None
        return damaged


class TopicWriter:
    """The producer of one topic: what is not acknowledged when the broker dies is sent again."""

    def __init__(self, site: Site, records: FeatureRecords) -> None:
        self._site = site
        self.records = records
        self._in_flight: deque[tuple[int, bytes]] = deque()
        self.next = 0
        self._connection: RawConnection | None = None
        self.base_offsets: list[int] = []
        """Of each acknowledged batch."""

    @property
    def topic(self) -> str:
        return self.records.topic

    def connect(self) -> None:
        """Continue with a broker that has just started."""
        self.close()
        self._connection = RawConnection(self._site.broker.port, timeout=60)
        for _, frame in self._in_flight:
            self._connection.send(frame)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()

    def write(self) -> None:
        """Send the next batch; without keys only while the topic is not compacted."""
        if self.records.has_keys(self.next):
            self._send()
            return
        self.finish()
        self._site.alter(self.topic, cleanup_policy="delete")
        self._send()
        self.finish()
        self._site.alter(self.topic, cleanup_policy="compact")
        self._site.done["changes of the policy"] += 2

    def finish(self) -> None:
        """Have everything acknowledged."""
        while self._in_flight:
            self._hear()

    def _send(self) -> None:
        assert self._connection is not None
        while len(self._in_flight) >= IN_FLIGHT_MAX:
            self._hear()
        batch = self.records.batch(self.next)
        frame = produce_request(self.topic, 0, batch, acks=-1)
        self._in_flight.append((self.next, frame))
        self.next += RECORDS_A_BATCH
        self._connection.send(frame)

    def _hear(self) -> None:
        assert self._connection is not None
        answer = self._connection.receive()
        at = 4 + 4 + 2 + len(self.topic) + 4 + 4
        error_code, base_offset = struct.unpack_from(">hq", answer, at)
        first, _ = self._in_flight.popleft()
        assert error_code == 0, f"{self.topic}: record {first} was answered with {error_code}"
        assert len(self.base_offsets) * RECORDS_A_BATCH == first
        if self.base_offsets:
            assert base_offset >= self.base_offsets[-1] + RECORDS_A_BATCH
        self.base_offsets.append(base_offset)

    def offsets_of(self, numbers: Offsets) -> Offsets:
        bases = np.array(self.base_offsets, np.int64)
        return bases[numbers // RECORDS_A_BATCH] + numbers % RECORDS_A_BATCH
