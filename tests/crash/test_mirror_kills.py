"""A mirror follows a broker that is written, cleaned and killed, and is killed itself: it ends equal.

`KOMPAKT_MIRROR_KILLS` sets how many kills there are, `KOMPAKT_MIRROR_KILL_SEED` repeats the choices.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.crash.test_attack_soak import expected_values, last_values
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.group_run import until
from tests.harness.keyed_writer import KeyedWriter
from tests.harness.typed_commands import TypedCommands

KILLS = int(os.environ.get("KOMPAKT_MIRROR_KILLS", "200" if "KOMPAKT_SOAK" in os.environ else "5"))
TOPIC, PARTITIONS = "state", 3
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0",
}
BROKER = {"log.cleaner.backoff.ms": "100"}


@pytest.mark.crash
@pytest.mark.parametrize("compaction", ["off", "on"])
def test_whatever_is_killed_the_mirror_ends_with_the_sources_state(
    tmp_path: Path, compaction: str
) -> None:
    seed = int(os.environ.get("KOMPAKT_MIRROR_KILL_SEED", random.randrange(1 << 16)))
    choices = random.Random(seed)
    (tmp_path / "seed").write_text(f"KOMPAKT_MIRROR_KILL_SEED={seed}")
    with (
        BrokerProcess(tmp_path / "source", BROKER) as source,
        BrokerProcess(tmp_path / "target", BROKER) as target,
    ):
        create_topic(source.bootstrap_servers, TOPIC, partitions=PARTITIONS, config=CONFIG)
        typed = TypedCommands(target)
        create = ["replica", "create", "dr", "--source", source.bootstrap_servers]
        typed.told(*create, "--topic", TOPIC, "--compaction", compaction)
        with KeyedWriter(
            source.bootstrap_servers, TOPIC, partitions=PARTITIONS, seed=seed
        ) as writer:
            for _ in range(KILLS):
                time.sleep(0.3 + choices.random())
                kill(choices.choice((source, target)))
        until(
            "the mirror has everything", lambda: is_level(typed, source), lambda: str(status(typed))
        )
        expected = expected_values(writer)
        assert last_values(source.bootstrap_servers) == expected
        assert last_values(target.bootstrap_servers) == expected
        typed.told("replica", "promote", TOPIC)
        assert last_values(target.bootstrap_servers) == expected


def kill(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def status(typed: TypedCommands) -> dict[str, Any]:
    """Returns the link as JSON, whatever its state is."""
    found: dict[str, Any] = json.loads(typed.run("replica", "status", "dr", "--json").stdout)
    return found


def is_level(typed: TypedCommands, source: BrokerProcess) -> bool:
    """Returns whether all partitions are synced up to where the source ends now."""
    found = status(typed)["partitions"]
    return {each["partition"]: each["synced_end"] for each in found} == ends(source)


def ends(broker: BrokerProcess) -> dict[int, int]:
    """Returns the high watermark of each partition."""
    settings = {"group.id": "ends", "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=60)[1]
            for number in range(PARTITIONS)
        }
    finally:
        consumer.close()
