"""Gets: the last values of keys over HTTP, from a cleaned partition of ten million keys.

get       one key a request, on one connection
batch     100 keys a request; also while another connection produces one record at a time
first     the first get of a partition makes its table, from the key sidecars
spilled   the same where a quarter of the keys would fit into memory: the table is on the disk
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles

from bench.base.batches import NumberedBatch, keyed_batch
from bench.base.connection import connected
from bench.base.figure import Figure, interleaved, of_pairs
from bench.base.http import HttpConnection, clean_now
from bench.base.processes import (
    broker_command,
    cpu_seconds,
    free_port,
    resident_bytes,
    running,
)
from bench.base.raw_protocol import create_topic_request, produce_request
from bench.clients.throughput import pump

KEYS = 10_000_000
RECORDS_EACH_BATCH = 100
VALUE_BYTES = 100
BATCH_KEYS = 100
TABLE_BYTES, SPILLING_BYTES = 1 << 30, 64 << 20
"""The table takes 267 MB."""
TOPIC, OTHER = "state", "other"
REQUESTS = 3_000
LEG_SECONDS = 3.0
LIVE = "/health/live"


@dataclass(slots=True)
class Site:
    """A broker with the keys, and where to ask."""

    port: int
    http_port: int
    pid: int
    data: Path
    random: random.Random
    keys: int


def key_lookup_figures(pairs: int) -> list[Figure]:
    """Measure gets beside the fastest route of the same HTTP server, and produces beside gets."""
    with site() as its:
        figures = [*get_figures(its, pairs), produce_figure(its, pairs)]
    with site(table_bytes_max=SPILLING_BYTES) as its:
        figures += [
            replace(each, name=f"{each.name}, table on the disk")
            for each in get_figures(its, pairs)
        ]
    return figures


def get_figures(its: Site, pairs: int) -> list[Figure]:
    first = first_figure(its)
    with closing(HttpConnection(its.http_port)) as connection:
        return [
            first,
            get_figure(its, connection, "rate", pairs),
            get_figure(its, connection, "p99", pairs),
            batch_figure(its, connection, pairs),
        ]


@contextmanager
def site(keys: int = KEYS, table_bytes_max: int = TABLE_BYTES) -> Iterator[Site]:
    """Run a broker, fill a partition, clean it."""
    with tempfile.TemporaryDirectory() as folder:
        port, http_port, data = free_port(), free_port(), Path(folder) / "data"
        settings = (
            f"http.listener=http://127.0.0.1:{http_port}",
            "log.cleaner.backoff.ms=3600000",
            f"key.lookup.bytes.max={table_bytes_max}",
        )
        with running(broker_command(port, data, *settings), http_port) as pid:
            fill(port, keys)
            clean_now(http_port, TOPIC)
            yield Site(port, http_port, pid, data, random.Random(1), keys)


def fill(port: int, keys: int) -> None:
    batch = NumberedBatch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES)
    with connected(port) as connection:
        connection.ask(create_topic_request(TOPIC, 1, {"cleanup.policy": "compact"}))
        connection.ask(create_topic_request(OTHER, 1, {"cleanup.policy": "compact"}))
        for start in range(0, keys, RECORDS_EACH_BATCH * 100):
            numbers = range(start, start + RECORDS_EACH_BATCH * 100, RECORDS_EACH_BATCH)
            frames = [
                produce_request(
                    TOPIC, 0, batch.with_keys(range(each, each + RECORDS_EACH_BATCH)), acks=1
                )
                for each in numbers
            ]
            pump(connection, frames, len(frames))


def first_figure(its: Site) -> Figure:
    """Measure the first get, and the memory that its table takes."""
    before = resident_bytes(its.pid)
    with closing(HttpConnection(its.http_port)) as connection:
        request = get_of(its, connection)
        started = time.perf_counter()
        connection.ask(request)
        seconds = time.perf_counter() - started
    taken = (resident_bytes(its.pid) - before) / its.keys
    sidecars = list(its.data.glob(f"{TOPIC}.*/0/*.keys"))
    started = time.perf_counter()
    for each in sidecars:
        each.read_bytes()
    limit = time.perf_counter() - started
    figure = of_pairs(
        "first get of a partition of 10 million keys",
        "s",
        [(seconds, limit)],
        limit_is="reading its key sidecars",
    )
    return replace(figure, note=f"{taken:.1f} bytes of memory a key")


def get_figure(its: Site, connection: HttpConnection, what: str, pairs: int) -> Figure:
    """Measure gets of random keys, beside the route that answers a constant."""
    live = connection.request("GET", LIVE)
    micros: list[float] = []

    def measure(make: Callable[[], bytes]) -> float:
        requests = [make() for _ in range(REQUESTS)]
        before = cpu_seconds(its.pid)
        seconds = timed(connection, requests)
        micros.append((cpu_seconds(its.pid) - before) / REQUESTS * 1e6)
        return REQUESTS / sum(seconds) if what == "rate" else 1e3 * quantiles(seconds, n=100)[98]

    unit = "requests/s" if what == "rate" else "ms"
    figure = interleaved(
        f"get of one key, {what}, one connection",
        unit,
        lambda: measure(lambda: get_of(its, connection)),
        lambda: measure(lambda: live),
        limit_is=f"GET {LIVE}" + ("" if what == "rate" else " (less is better)"),
        pairs=pairs,
    )
    mine, its_own = median(micros[::2]), median(micros[1::2])
    return replace(figure, note=f"{mine:.0f} µs of CPU a request ({LIVE}: {its_own:.0f})")


def batch_figure(its: Site, connection: HttpConnection, pairs: int) -> Figure:
    live = connection.request("GET", LIVE)
    micros: list[float] = []
    count = REQUESTS // 10

    def keys_a_second() -> float:
        requests = [batch_of(its, connection) for _ in range(count)]
        before = cpu_seconds(its.pid)
        seconds = sum(timed(connection, requests))
        micros.append((cpu_seconds(its.pid) - before) / count / BATCH_KEYS * 1e6)
        return count * BATCH_KEYS / seconds

    figure = interleaved(
        f"batches of {BATCH_KEYS} keys, one connection",
        "keys/s",
        keys_a_second,
        lambda: REQUESTS / sum(timed(connection, [live] * REQUESTS)),
        limit_is=f"GET {LIVE}, in requests/s",
        pairs=pairs,
    )
    return replace(figure, note=f"{median(micros):.0f} µs of CPU a key")


def produce_figure(its: Site, pairs: int) -> Figure:
    """Measure the p99 of produces of one record, while batches of keys are looked up all the time."""
    frame = produce_request(
        OTHER, 0, keyed_batch(records=1, value_bytes=84, keys=1, seed=4), acks=1
    )

    def p99_ms() -> float:
        seconds: list[float] = []
        with connected(its.port) as connection:
            end = time.perf_counter() + LEG_SECONDS
            while (started := time.perf_counter()) < end:
                connection.ask(frame)
                seconds.append(time.perf_counter() - started)
        return 1e3 * quantiles(seconds, n=100)[98]

    def beside_gets() -> float:
        # A process of its own: a thread here would hold up the one that measures.
        context = get_context("spawn")
        is_over, has_begun = context.Event(), context.Event()
        looking_up = context.Process(target=look_up, args=(its, has_begun, is_over))
        looking_up.start()
        has_begun.wait()
        try:
            return p99_ms()
        finally:
            is_over.set()
            looking_up.join()

    return interleaved(
        "produce p99 beside batches of keys, acks=1",
        "ms",
        beside_gets,
        p99_ms,
        limit_is="the same without them (less is better)",
        pairs=pairs,
    )


def look_up(its: Site, has_begun: Event, is_over: Event) -> None:
    """Look up batches of keys until it is over."""
    with closing(HttpConnection(its.http_port)) as connection:
        requests = [batch_of(its, connection) for _ in range(50)]
        has_begun.set()
        while not is_over.is_set():
            timed(connection, requests[:5])


def timed(connection: HttpConnection, requests: list[bytes]) -> list[float]:
    """Send requests one after the other. Returns how long each took, in seconds."""
    seconds = []
    for each in requests:
        started = time.perf_counter()
        connection.ask(each)
        seconds.append(time.perf_counter() - started)
    return seconds


def get_of(its: Site, connection: HttpConnection) -> bytes:
    path = f"/v1/topics/{TOPIC}/keys/{random_key(its)}?key_encoding=base64url"
    return connection.request("GET", path)


def batch_of(its: Site, connection: HttpConnection) -> bytes:
    keys = [random_key(its) for _ in range(BATCH_KEYS)]
    body = json.dumps({"keys": keys, "key_encoding": "base64url"}).encode()
    return connection.request("POST", f"/v1/topics/{TOPIC}/keys:batch", body)


def random_key(its: Site) -> str:
    return urlsafe_b64encode(its.random.randrange(its.keys).to_bytes(8, "little")).decode()
