"""A program that consumes, transforms and produces in transactions, in a process that may be killed.

    python -m tests.harness.transaction_program CLIENT BOOTSTRAP NAME=VALUE ...

It prints each step before it takes it, one per line (the format is in `transaction_history.py`). Any
error ends it with code 1; its parent restarts it with the next `life`. SIGTERM ends it with code 0 once
no transaction is open.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.harness.transaction_history import Place

KEYS = 12
SESSION_TIMEOUT_MS = 3_000
"""Session timeout of members; the broker must allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings from the command line."""

    bootstrap: str
    transactional_id: str
    life: int
    seed: int
    outputs: tuple[str, ...]
    """Output topics."""
    partitions: int
    """Partitions of each topic."""
    group: str = "-"
    inputs: tuple[Place, ...] = ()
    """Partitions to consume; none for a feeder."""
    is_member: bool = False
    """Whether the group's coordinator assigns the partitions of the input topic. Members with the Java
    client are static; with other clients, before JoinGroup 9, they would keep forever the assignment of
    a leader that knew no partitions yet (KIP-814)."""
    aborts: float = 0.25
    pause_ms: int = 20
    """The longest pause between a transaction's last record and its end."""
    records_max: int = 6
    transactions: int = 0
    """Number of transactions of a feeder."""
    timeout_ms: int = 10_000
    """Transaction timeout."""

    @classmethod
    def read(cls, bootstrap: str, pairs: Sequence[str]) -> Settings:
        said = dict(pair.split("=", 1) for pair in pairs)
        return cls(
            bootstrap=bootstrap,
            transactional_id=said["transactional.id"],
            life=int(said["life"]),
            seed=int(said["seed"]),
            outputs=tuple(said["outputs"].split(",")),
            partitions=int(said["partitions"]),
            group=said.get("group", "-"),
            inputs=tuple(read_place(word) for word in said.get("inputs", "").split(",") if word),
            is_member="member" in said,
            transactions=int(said.get("transactions", "0")),
            timeout_ms=int(said.get("timeout.ms", "10000")),
        )


@dataclass(frozen=True, slots=True)
class Input:
    """A record to handle."""

    place: Place
    offset: int
    key: bytes


class ProgramClient(Protocol):
    """The operations that a client library must provide. Any exception ends the program."""

    def poll(self) -> list[Input]:
        """Returns the next input records (read_committed); none after a timeout."""

    def begin(self) -> None: ...

    def send(self, place: Place, key: bytes, value: bytes | None, record_id: bytes) -> None:
        """Give a record to the producer; the id goes into its header `id`."""

    def delivered(self) -> list[int]:
        """Wait for delivery. Returns the offsets of the records since `begin`, -1: not reported."""

    def send_offsets(self, offsets: Mapping[Place, int]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def rewind(self) -> None:
        """Seek to the group's committed offsets."""

    def close(self) -> None:
        """Close cleanly and leave the group."""


class Program:
    """The main loop, the same for each client."""

    def __init__(self, client: ProgramClient, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._random = random.Random(settings.seed * 1000 + settings.life)
        self._count = 0

    def feed(self) -> None:
        """Run the given number of transactions with generated records."""
        for _ in range(self._settings.transactions):
            keys = [b"key-%d" % self._random.randrange(KEYS) for _ in range(self._some())]
            self._transact([(key, "-") for key in keys], {})
            time.sleep(self._random.random() * 0.06)

    def work(self, ended: Sequence[int]) -> None:
        """Handle inputs until the end is requested."""
        while not ended:
            inputs = self._client.poll()
            if not inputs:
                continue
            made_of = [
                (each.key, f"{each.place[0]}:{each.place[1]}:{each.offset}") for each in inputs
            ]
            ends = {each.place: each.offset + 1 for each in inputs}
            if not self._transact(made_of, ends):
                self._client.rewind()

    def _some(self) -> int:
        return self._random.randrange(1, self._settings.records_max)

    def _transact(self, made_of: Sequence[tuple[bytes, str]], offsets: Mapping[Place, int]) -> bool:
        """Run one transaction. Returns whether it was committed."""
        self._count += 1
        name = f"{self._settings.transactional_id}.{self._settings.life}.{self._count}"
        say(f"begin {name} {time.monotonic_ns()} {self._settings.group}")
        self._client.begin()
        self._send(name, made_of)
        for place, offset in offsets.items():
            say(f"offsets {place[0]} {place[1]} {offset}")
        if offsets:
            self._client.send_offsets(offsets)
        time.sleep(self._random.random() * self._settings.pause_ms / 1000)
        if self._random.random() < self._settings.aborts:
            self._abort()
            return False
        self._commit()
        return True

    def _send(self, name: str, made_of: Sequence[tuple[bytes, str]]) -> None:
        number = 0
        for key, source in made_of:
            for topic in self._settings.outputs:
                place = (topic, self._random.randrange(self._settings.partitions))
                is_tombstone = topic.startswith("table") and self._random.random() < 0.2
                say(f"send {place[0]} {place[1]} {key.decode()} {source}")
                value = None if is_tombstone else b"%s of %s" % (key, name.encode())
                self._client.send(place, key, value, f"{name} {number}".encode())
                number += 1

    def _commit(self) -> None:
        offsets = self._client.delivered()
        say(" ".join(["at", *map(str, offsets)]))
        say("commit")
        self._client.commit()
        say("committed")

    def _abort(self) -> None:
        if self._random.random() < 0.5:
            self._client.delivered()
        say("abort")
        self._client.abort()
        say("aborted")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def read_place(word: str) -> Place:
    topic, partition = word.rsplit(":", 1)
    return topic, int(partition)


def client_of(name: str, settings: Settings) -> ProgramClient:
    """Create the client. Only its library is imported, because programs start often."""
    match name:
        case "confluent-kafka":
            from tests.harness.transaction_confluent import ConfluentProgram

            return ConfluentProgram(settings)
        case "kafka-python":
            from tests.harness.transaction_kafka_python import KafkaPythonProgram

            return KafkaPythonProgram(settings)
        case "aiokafka":
            from tests.harness.transaction_aiokafka import AiokafkaProgram

            return AiokafkaProgram(settings)
        case _:
            raise SystemExit(f"no client {name}")


def main() -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    faulthandler.register(signal.SIGQUIT)
    name, bootstrap, *pairs = sys.argv[1:]
    settings = Settings.read(bootstrap, pairs)
    client = client_of(name, settings)
    program = Program(client, settings)
    if settings.transactions:
        program.feed()
    else:
        program.work(ended)
    client.close()


if __name__ == "__main__":
    main()
