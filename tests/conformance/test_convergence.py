"""The cleaner finishes with a topic without writes, as Redpanda's stress test asserts it.

All settings except times are the defaults: the segments are 1 GiB, so that only the idle roll makes them
cleanable, and the dirty ratio must exceed one half. It makes no difference whether the key sidecars are
kept, removed or damaged between the pass that cleans the records and the one that drops the tombstones.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from metrics import cleaner_names
from storage.files.local_files import LocalFileSystem
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.sidecar_mode import SidecarMode

TOPIC = "accounts"
ROUNDS, KEYS = 6, 200
DELETE_RETENTION_MS = 1500
TIMES = {"compaction.idle.roll.ms": "300", "delete.retention.ms": str(DELETE_RETENTION_MS)}
BROKER_TIMES = {"log.cleaner.backoff.ms": 50, "log.roll.check.interval.ms": 50}
SECONDS_MAX = 300.0
SCRAPE_AGE_MAX = 1.0
"""Seconds for which the text of a scrape is kept."""

Entry = tuple[int, bytes, bytes | None]


@pytest.mark.conformance
@pytest.mark.parametrize(
    "modes",
    [(SidecarMode.OFF,), (SidecarMode.KEPT, SidecarMode.MISSING, SidecarMode.DAMAGED)],
    ids=["no_sidecars", "sidecars"],
)
def test_without_traffic_dirt_and_tombstones_go_and_the_latest_view_stays(
    tmp_path: Path, modes: tuple[SidecarMode, ...]
) -> None:
    keeps = str(SidecarMode.OFF not in modes).lower()
    with BrokerProcess(
        tmp_path, BROKER_TIMES | {"log.cleaner.key.sidecar.enable": keeps}
    ) as broker:
        topics = {f"{TOPIC}-{mode.value}": mode for mode in modes}
        views = {topic: write(broker, topic) for topic in topics}
        for topic, mode in topics.items():
            wait_until_clean(f"127.0.0.1:{broker.http_port}", topic, seconds_max=SECONDS_MAX)
            assert samples(broker.metrics(), cleaner_names.DIRTY_RATIO.name, topic=topic) == [0]
            befall_sidecars(broker, topic, mode)
        for topic, view in views.items():
            check_that_it_rests(wait_until_only_values_are_left(broker, topic), view)
        wait_until_counted(broker, passes=2 * len(topics))
        # On a slow machine, a topic may roll while it is written and so take one more pass.
        passes = completed_passes(broker)
        time.sleep(DELETE_RETENTION_MS / 1000 + SCRAPE_AGE_MAX)
        assert completed_passes(broker) == passes, "there is nothing left to do"


def write(broker: BrokerProcess, topic: str) -> str:
    """Several values of each key; the digest of the latest ones."""
    create_topic(broker.bootstrap_servers, topic, config=TIMES | {"cleanup.policy": "compact"})
    for round_ in range(ROUNDS):
        pairs = [(b"key-%d" % key, value_of(key, round_)) for key in range(KEYS)]
        ConfluentClient().produce(broker.bootstrap_servers, {topic: "none"}, pairs)
    return digest(entries_of(broker, topic))


def befall_sidecars(broker: BrokerProcess, topic: str, mode: SidecarMode) -> None:
    (directory,) = broker.data_dir.glob(f"{topic}.*/0")
    before = [path.read_bytes() for path in directory.glob("*.keys")]
    mode.happen(LocalFileSystem(), str(directory), Random(1))
    after = [path.read_bytes() for path in directory.glob("*.keys")]
    assert (before != after) == (mode in (SidecarMode.MISSING, SidecarMode.DAMAGED))


def check_that_it_rests(entries: list[Entry], view: str) -> None:
    *body, (tail, _, _) = entries
    assert tail == ROUNDS * KEYS - 1, "the last record stays, so that readers reach the end"
    assert len({key for _, key, _ in entries}) == len(entries), "one record a key"
    assert digest(entries) == view
    assert [offset for offset, _, _ in body] == sorted(offset for offset, _, _ in body)


def wait_until_counted(broker: BrokerProcess, passes: int) -> None:
    """A pass is counted a moment after its swap is seen, and shown by the next scrape."""
    deadline = time.monotonic() + SECONDS_MAX
    while completed_passes(broker) < passes:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def completed_passes(broker: BrokerProcess) -> float:
    return sum(samples(broker.metrics(), cleaner_names.PASSES.name, result="completed"))


def value_of(key: int, round_: int) -> bytes | None:
    """A third of the keys ends as deleted."""
    is_deleted = (key + round_) % 3 == 0
    return None if is_deleted else b"value %d of key %d" % (round_, key)


def entries_of(broker: BrokerProcess, topic: str) -> list[Entry]:
    consumed = ConfluentClient().consume(broker.bootstrap_servers, [topic])
    return [(offset, key or b"", value) for _, _, offset, key, value in consumed]


def digest(entries: Iterable[Entry]) -> str:
    """Of the latest view: each key that has a value, and that value."""
    view = {key: value for _, key, value in entries}
    values = sorted((key, value) for key, value in view.items() if value is not None)
    return hashlib.sha256(repr(values).encode()).hexdigest()


def wait_until_only_values_are_left(broker: BrokerProcess, topic: str) -> list[Entry]:
    """Until the expired tombstones are gone, all but one that the log's end may hold."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        entries = entries_of(broker, topic)
        left = [offset for offset, _, value in entries[:-1] if value is None]
        if not left:
            return entries
        assert time.monotonic() < deadline, f"tombstones at {left} are left"
        time.sleep(0.1)
