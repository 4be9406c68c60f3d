"""The view of a topic's last values, beside the topic: ten million records of a million keys.

state     a client of librdkafka reads a topic that was never cleaned into a dict, from the view and from
          the topic
fetch     once the topic is cleaned, answers of up to 1 MiB over one connection, one request at a time:
          right after the pass, while the notes of the table follow it, and later
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected
from bench.base.figure import Figure, interleaved, of_pairs
from bench.base.http import clean_now
from bench.base.processes import (
    broker_command,
    cpu_seconds,
    free_port,
    resident_bytes,
    running,
)
from bench.base.raw_protocol import (
    create_topic_request,
    fetch_head,
    fetch_request,
    produce_request,
)
from bench.clients.throughput import pump
from protocol.records.batch_header import read_header

RECORDS, KEYS = 10_000_000, 1_000_000
RECORDS_EACH_BATCH = 1_000
TEMPLATES = 1_000
VALUE_BYTES = 100
TOPIC, VIEW = "orders", "orders.latest"
FETCH_BYTES = 1 << 20
MESSAGES_A_CALL = 10_000
ROUNDS = 10
"""So often a cleaned topic is read for one figure, because once takes some 50 ms."""
MEGABYTE = 1e6


@dataclass(slots=True)
class Site:
    """A broker with the topic."""

    port: int
    http_port: int
    pid: int


def latest_view_figures(pairs: int) -> list[Figure]:
    """Measure the view beside the topic, before and after a pass."""
    with site() as its:
        first = first_figure(its)
        state = state_figure(its, pairs)
        clean_now(its.http_port, TOPIC)
        after_pass = fetch_figure(its, 1, 1, "right after a pass")
        return [first, state, after_pass, fetch_figure(its, pairs, ROUNDS, "cleaned")]


@contextmanager
def site() -> Iterator[Site]:
    """Run a broker, and fill the topic."""
    with tempfile.TemporaryDirectory() as folder:
        port, http_port = free_port(), free_port()
        settings = (
            f"http.listener=http://127.0.0.1:{http_port}",
            "log.cleaner.backoff.ms=3600000",
            "log.cleaner.index.ahead.enable=false",
        )
        command = broker_command(port, Path(folder) / "data", *settings)
        with running(command, http_port) as pid:
            fill(port)
            yield Site(port, http_port, pid)


def fill(port: int) -> None:
    frames = [
        produce_request(TOPIC, 0, batch, acks=1)
        for batch in (
            keyed_batch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES, keys=KEYS, seed=seed)
            for seed in range(TEMPLATES)
        )
    ]
    with connected(port) as connection:
        connection.ask(create_topic_request(TOPIC, 1, {"cleanup.policy": "compact"}))
        for _ in range(RECORDS // RECORDS_EACH_BATCH // TEMPLATES):
            pump(connection, frames, len(frames))


def first_figure(its: Site) -> Figure:
    """Measure the first answer, for which the keys' table is made, and the memory that this takes."""
    before = resident_bytes(its.pid)
    with connected(its.port) as connection:
        started = time.perf_counter()
        connection.ask(fetch_request(VIEW, 0, 0, bytes_max=FETCH_BYTES))
        seconds = time.perf_counter() - started
        taken = (resident_bytes(its.pid) - before) / KEYS
        limit, _ = read_all(connection, TOPIC)
    figure = of_pairs(
        "first answer of the view, not cleaned, no key sidecars",
        "s",
        [(seconds, limit)],
        limit_is="fetching the whole topic",
    )
    return replace(figure, note=f"{taken:.1f} bytes of memory a key")


def state_figure(its: Site, pairs: int) -> Figure:
    return interleaved(
        "last values into a dict, not cleaned, librdkafka",
        "s",
        lambda: state_seconds(its.port, VIEW),
        lambda: state_seconds(its.port, TOPIC),
        limit_is="the same from the topic (less is better)",
        pairs=pairs,
    )


def state_seconds(port: int, topic: str) -> float:
    """Read a topic to its end into a dict. Returns how long that took."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "unused: the partition is assigned",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    state: dict[bytes, bytes] = {}
    try:
        started = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        is_at_end = False
        while not is_at_end:
            for message in consumer.consume(MESSAGES_A_CALL, timeout=1.0):
                if message.error() is None:
                    state[message.key()] = message.value()
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    is_at_end = True
        return time.perf_counter() - started
    finally:
        consumer.close()


def fetch_figure(its: Site, pairs: int, rounds: int, when: str) -> Figure:
    cpu: list[float] = []

    def rate(topic: str) -> float:
        before = cpu_seconds(its.pid)
        with connected(its.port) as connection:
            read = [read_all(connection, topic) for _ in range(rounds)]
        seconds, size = sum(each for each, _ in read), sum(each for _, each in read)
        cpu.append((cpu_seconds(its.pid) - before) / size * 1e9)
        return size / seconds / MEGABYTE

    figure = interleaved(
        f"fetch of the view, {when}, 1 MiB answers",
        "MB/s",
        lambda: rate(VIEW),
        lambda: rate(TOPIC),
        limit_is="fetch of the topic",
        pairs=pairs,
    )
    views, topics = sorted(cpu[::2]), sorted(cpu[1::2])
    middle = len(views) // 2
    return replace(
        figure, note=f"{views[middle]:.2f} s of CPU a gigabyte (topic: {topics[middle]:.2f})"
    )


def read_all(connection: Connection, topic: str) -> tuple[float, int]:
    """Fetch a topic from its start to its end. Returns the seconds, and the bytes of the records."""
    started, offset, read = time.perf_counter(), 0, 0
    while offset < RECORDS:
        answer = connection.ask(fetch_request(topic, 0, offset, bytes_max=FETCH_BYTES))
        error, size, position = fetch_head(answer)
        assert error == 0, error
        assert size, f"nothing at offset {offset}"
        offset = _end_of(answer[position : position + size])
        read += size
    return time.perf_counter() - started, read


def _end_of(records: memoryview) -> int:
    """Returns the offset after the last batch."""
    last = at = 0
    while at < len(records):
        last, at = at, at + 12 + int.from_bytes(records[at + 8 : at + 12], "big")
    return read_header(records[last:]).next_offset
