"""The resident memory of a connection whose client does nothing, with TLS and without.

Each client connects, asks for the served APIs, and keeps its connection open. In a second round each has
sent a large produce before, because a server may keep what it needed for that. The figure is what the
broker holds more than before the first connection, once its memory has settled.

Clients and broker need a descriptor for each connection, each in its own process.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bench.base.batches import keyed_batch
from bench.base.connection import Connection
from bench.base.figure import Figure, of_pairs
from bench.base.processes import broker_command, free_port, resident_bytes, running
from bench.base.raw_protocol import api_versions_request, create_topic_request, produce_request
from bench.base.tls import Tls

CONNECTIONS = 10_000
PRODUCING_CONNECTIONS = 1_000
SETTLE_SECONDS = 12.0
"""Two looks of the broker's memory upkeep."""
BUDGET_KIBIBYTES = 64.0
TOPIC = "idle"


def idle_connection_figures(pairs: int) -> list[Figure]:
    """Measure idle connections; one round each, because it opens thousands of them."""
    del pairs
    return [
        _figure(has_tls=has_tls, has_produced=has_produced)
        for has_tls in (False, True)
        for has_produced in (False, True)
    ]


def _figure(*, has_tls: bool, has_produced: bool) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        port, tls = free_port(), Tls(Path(folder) / "tls")
        settings = tls.broker_settings(port) if has_tls else ()
        command = broker_command(port, Path(folder) / "data", *settings)
        frame = _large_produce() if has_produced else api_versions_request()
        count = PRODUCING_CONNECTIONS if has_produced else CONNECTIONS
        with running(command, port) as pid:
            kibibytes = _kibibytes_each(pid, port, tls.client if has_tls else None, frame, count)
    kind = "TLS" if has_tls else "plain"
    past = ", after a produce of 1 MiB" if has_produced else ""
    return of_pairs(
        f"memory, each idle {kind} connection{past}",
        "KiB",
        [(kibibytes, BUDGET_KIBIBYTES)],
        limit_is="the budget",
        note=f"{count:,} connections",
    )


def _large_produce() -> bytes:
    batch = keyed_batch(records=1000, value_bytes=1000, keys=1000, seed=5)
    return produce_request(TOPIC, 0, batch, acks=1)


def _kibibytes_each(
    pid: int, port: int, tls: ssl.SSLContext | None, frame: bytes, count: int
) -> float:
    first = Connection(port, tls)
    first.ask(create_topic_request(TOPIC, 1, {}))
    first.ask(frame)
    time.sleep(SETTLE_SECONDS)
    before = resident_bytes(pid)
    descriptors = []
    try:
        for _ in range(count):
            connection = Connection(port, tls)
            connection.ask(frame)
            # Only the descriptor, so that the client's own memory stays small.
            descriptors.append(connection.detach())
        time.sleep(SETTLE_SECONDS)
        return (resident_bytes(pid) - before) / 1024 / count
    finally:
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)
        first.close()
