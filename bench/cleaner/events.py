"""What `log.cleaner.events.enable` costs: many small passes of a broker, with it and without.

The passes are as short as they get, so this is the worst case: two events for each few milliseconds.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected
from bench.base.figure import Figure, interleaved
from bench.base.http import clean_now
from bench.base.processes import NODE_ID, broker_command, free_port, running
from bench.base.raw_protocol import (
    alter_broker_request,
    create_topic_request,
    produce_errors,
    produce_to_many_request,
)

ENABLE = "log.cleaner.events.enable"
TOPIC = "table"
PARTITIONS = 200


def event_figures(pairs: int) -> list[Figure]:
    """Measure passes over 200 partitions with 1,000 new records each."""
    with tempfile.TemporaryDirectory() as folder:
        port, http_port = free_port(), free_port()
        settings = f"http.listener=http://127.0.0.1:{http_port}", "log.cleaner.backoff.ms=3600000"
        broker = broker_command(port, Path(folder) / "data", *settings)
        with running(broker, http_port), connected(port) as connection:
            connection.ask(create_topic_request(TOPIC, PARTITIONS, {"cleanup.policy": "compact"}))
            _seconds(connection, http_port, is_on=True)
            figure = interleaved(
                "small passes, with events",
                "ms a pass",
                lambda: _seconds(connection, http_port, is_on=True) / PARTITIONS * 1e3,
                lambda: _seconds(connection, http_port, is_on=False) / PARTITIONS * 1e3,
                limit_is="the same passes, without events",
                pairs=pairs,
            )
    return [figure]


def _seconds(connection: Connection, http_port: int, *, is_on: bool) -> float:
    """Clean all partitions after an append to each. Returns how long that took."""
    connection.ask(alter_broker_request(NODE_ID, ENABLE, "true" if is_on else "false"))
    batch = keyed_batch(records=1000, value_bytes=100, keys=1000, seed=1)
    answer = connection.ask(produce_to_many_request(TOPIC, range(PARTITIONS), batch, acks=1))
    assert not produce_errors(answer)
    started = time.perf_counter()
    clean_now(http_port, TOPIC)
    return time.perf_counter() - started
