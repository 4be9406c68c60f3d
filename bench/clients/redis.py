"""Gets beside Redis, with the same keys and values: a million, of 8 and 100 bytes.

    python -m bench redis

It needs `redis-server` (Debian: apt-get install redis-server), which keeps everything in memory and
saves nothing here. Kompakt reads the values from its log in the page cache, and finds them by a table.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from random import Random

from bench.base.connection import socket_to
from bench.base.figure import Figure, interleaved, of_pairs
from bench.base.http import HttpConnection
from bench.base.processes import free_port, resident_bytes, running
from bench.clients.key_lookups import (
    BATCH_KEYS,
    REQUESTS,
    VALUE_BYTES,
    Site,
    batch_of,
    get_of,
    site,
    timed,
)

KEYS = 1_000_000
FILLED_AT_ONCE = 10_000
RECEIVE_BYTES = 1 << 20


class RedisUnavailable(Exception):
    """There is no redis-server. The message says how to install it."""


class Redis:
    """One connection to a Redis server."""

    def __init__(self, port: int) -> None:
        self._socket: socket.socket = socket_to(port)
        self._received = b""

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: bytes, lines: int) -> None:
        """Send requests, and read so many lines of answers."""
        self._socket.sendall(request)
        found = self._received.count(b"\r\n")
        while found < lines:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("redis-server closed the connection")
            # A line's end may be cut in two.
            found += (self._received[-1:] + data).count(b"\r\n")
            self._received = data
        self._received = b""


def redis_figures(pairs: int) -> list[Figure]:
    """Measure gets and memory beside Redis. Raises RedisUnavailable."""
    with (
        site(KEYS) as its,
        redis() as (port, pid),
        closing(Redis(port)) as other,
        closing(HttpConnection(its.http_port)) as ours,
    ):
        before = resident_bytes(pid)
        fill(other)
        memory = memory_figure(its, ours, resident_bytes(pid) - before)
        return [
            interleaved(
                "get of one key, one connection",
                "requests/s",
                lambda: REQUESTS / sum(timed(ours, requests(its, ours, get_of))),
                lambda: rate(other, its.random, 1),
                limit_is="MGET of one key, Redis",
                pairs=pairs,
            ),
            interleaved(
                f"{BATCH_KEYS} keys a request, one connection",
                "keys/s",
                lambda: batch_rate(its, ours),
                lambda: rate(other, its.random, BATCH_KEYS),
                limit_is="MGET of Redis",
                pairs=pairs,
            ),
            memory,
        ]


@contextmanager
def redis() -> Iterator[tuple[int, int]]:
    """Run a Redis server that saves nothing. Yields its port and its process id."""
    if shutil.which("redis-server") is None:
        raise RedisUnavailable("run: apt-get install redis-server")
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]
    with running(command, port) as pid:
        yield port, pid


def fill(connection: Redis) -> None:
    value = Random(1).randbytes(VALUE_BYTES)
    assert b"\r\n" not in value, "answers are counted by their lines"
    for start in range(0, KEYS, FILLED_AT_ONCE):
        numbers = range(start, start + FILLED_AT_ONCE)
        sets = b"".join(command(b"SET", key_of(number), value) for number in numbers)
        connection.ask(sets, FILLED_AT_ONCE)


def memory_figure(its: Site, ours: HttpConnection, taken: int) -> Figure:
    """Measure the memory that the keys take. Ours leaves the values on disk."""
    before = resident_bytes(its.pid)
    ours.ask(get_of(its, ours))
    table = resident_bytes(its.pid) - before
    figure = of_pairs(
        "memory a key",
        "bytes",
        [(table / KEYS, taken / KEYS)],
        limit_is="Redis, values included (less is better)",
    )
    return replace(figure, note="ours: the table; the values are in the log")


def requests(
    its: Site, connection: HttpConnection, make: Callable[[Site, HttpConnection], bytes]
) -> list[bytes]:
    return [make(its, connection) for _ in range(REQUESTS)]


def batch_rate(its: Site, connection: HttpConnection) -> float:
    asked = requests(its, connection, batch_of)[: REQUESTS // 10]
    return len(asked) * BATCH_KEYS / sum(timed(connection, asked))


def rate(connection: Redis, source: Random, keys: int) -> float:
    """Returns the keys a second of requests for so many random keys each."""
    count = REQUESTS if keys == 1 else REQUESTS // 10
    asked = [
        command(b"MGET", *(key_of(source.randrange(KEYS)) for _ in range(keys)))
        for _ in range(count)
    ]
    # Each value has a line with its size; the answer to MGET has one more with their number.
    lines = 2 * keys + 1
    started = time.perf_counter()
    for each in asked:
        connection.ask(each, lines)
    return count * keys / (time.perf_counter() - started)


def key_of(number: int) -> bytes:
    return number.to_bytes(8, "little")


def command(*words: bytes) -> bytes:
    """Returns a command in Redis' protocol."""
    said = [b"*%d\r\n" % len(words)]
    said += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(said)
