"""A topic that nobody writes to any more comes to rest, as Redpanda's stress test asserts it.

Every setting is the default but for times, which are short: the segments are 1 GiB, so that only the
idle roll lets the cleaner at them, and the dirty ratio must pass one half.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from metrics import names
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import ConfluentClient, create_topic

TOPIC = "accounts"
ROUNDS, KEYS = 6, 200
DELETE_RETENTION_MS = 1500
TIMES = {"compaction.idle.roll.ms": "300", "delete.retention.ms": str(DELETE_RETENTION_MS)}
BROKER_TIMES = {"log.cleaner.backoff.ms": 50, "log.roll.check.interval.ms": 50}
SECONDS_MAX = 20.0

Entry = tuple[int, bytes, bytes | None]


@pytest.mark.conformance
def test_without_traffic_dirt_and_tombstones_go_and_the_latest_view_stays(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, BROKER_TIMES) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, config=TIMES | {"cleanup.policy": "compact"})
        for round_ in range(ROUNDS):
            pairs = [(b"key-%d" % key, value_of(key, round_)) for key in range(KEYS)]
            ConfluentClient().produce(broker.bootstrap_servers, {TOPIC: "none"}, pairs)
        view = digest(entries_of(broker))

        wait_until_clean(f"127.0.0.1:{broker.http_port}", TOPIC, seconds_max=SECONDS_MAX)
        assert samples(broker.metrics(), names.DIRTY_RATIO.name, topic=TOPIC) == [0]
        last_entries = wait_until_only_values_are_left(broker)

        *body, (tail, _, _) = last_entries
        assert tail == ROUNDS * KEYS - 1, "the last record stays, so that readers reach the end"
        assert len({key for _, key, _ in last_entries}) == len(last_entries), "one record a key"
        assert digest(last_entries) == view
        assert [offset for offset, _, _ in body] == sorted(offset for offset, _, _ in body)
        time.sleep(0.2)  # A pass is counted a moment after its swap is seen.
        passes = completed_passes(broker)
        time.sleep(DELETE_RETENTION_MS / 1000)
        assert completed_passes(broker) == passes == 2, "there is nothing to do any more"


def completed_passes(broker: BrokerProcess) -> float:
    return sum(samples(broker.metrics(), names.PASSES.name, result="completed"))


def value_of(key: int, round_: int) -> bytes | None:
    """A third of the keys ends as deleted."""
    is_deleted = (key + round_) % 3 == 0
    return None if is_deleted else b"value %d of key %d" % (round_, key)


def entries_of(broker: BrokerProcess) -> list[Entry]:
    consumed = ConfluentClient().consume(broker.bootstrap_servers, [TOPIC])
    return [(offset, key or b"", value) for _, _, offset, key, value in consumed]


def digest(entries: Iterable[Entry]) -> str:
    """Of the latest view: each key that has a value, and that value."""
    view = {key: value for _, key, value in entries}
    values = sorted((key, value) for key, value in view.items() if value is not None)
    return hashlib.sha256(repr(values).encode()).hexdigest()


def wait_until_only_values_are_left(broker: BrokerProcess) -> list[Entry]:
    """Until the expired tombstones are gone, all but one that the log's end may hold."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        entries = entries_of(broker)
        left = [offset for offset, _, value in entries[:-1] if value is None]
        if not left:
            return entries
        assert time.monotonic() < deadline, f"tombstones at {left} are left"
        time.sleep(0.1)
