"""A mirror follows a broker that is written, cleaned and killed, and is killed itself: it ends equal.

The source drops tombstones with the pass after the one that meets them, unless the mirror's slot holds
them: a hold that a kill of either side lost would leave deleted keys in the mirror.

`KOMPAKT_MIRROR_KILLS` sets how many kills there are, `KOMPAKT_MIRROR_KILL_SEED` repeats the choices.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_attack_soak import expected_values, last_values
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic, high_watermarks
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
    "delete.retention.ms": "0",
}
RECORDS_BETWEEN_KILLS_MAX = 150
BROKER = {"log.cleaner.backoff.ms": "100"}


@pytest.mark.crash
@pytest.mark.parametrize("compaction", ["off", "on"])
def test_whatever_is_killed_the_mirror_ends_with_the_sources_state(
    tmp_path: Path, compaction: str
) -> None:
    seed = int(os.environ.get("KOMPAKT_MIRROR_KILL_SEED", random.randrange(1 << 16)))
    choices = random.Random(seed)
    (tmp_path / "seed").write_text(f"KOMPAKT_MIRROR_KILL_SEED={seed}")
    with mirrored(tmp_path, compaction) as (source, target, typed):
        with KeyedWriter(
            source.bootstrap_servers, TOPIC, partitions=PARTITIONS, seed=seed
        ) as writer:
            for _ in range(KILLS):
                wait_for_records(writer, choices.randrange(1, RECORDS_BETWEEN_KILLS_MAX))
                kill(choices.choice((source, target)))
        check_ends_equal(source, target, typed, writer)


@contextmanager
def mirrored(
    tmp_path: Path, compaction: str, source_properties: Mapping[str, str] = BROKER
) -> Iterator[tuple[BrokerProcess, BrokerProcess, TypedCommands]]:
    """Runs a source with a topic, and a broker that mirrors it. Yields both, and the second one's
    commands."""
    with (
        BrokerProcess(tmp_path / "source", source_properties) as source,
        BrokerProcess(tmp_path / "target", BROKER) as target,
    ):
        create_topic(source.bootstrap_servers, TOPIC, partitions=PARTITIONS, config=CONFIG)
        typed = TypedCommands(target)
        create = ["replica", "create", "dr", "--source", source.bootstrap_servers]
        typed.told(*create, "--topic", TOPIC, "--compaction", compaction)
        yield source, target, typed


def check_ends_equal(
    source: BrokerProcess, target: BrokerProcess, typed: TypedCommands, writer: KeyedWriter
) -> None:
    """Wait until the mirror has everything; both sides show it, also after a promotion."""
    until("the mirror has everything", lambda: is_level(typed, source), lambda: str(status(typed)))
    expected = expected_values(writer)
    shows(source, expected)
    shows(target, expected)
    typed.told("replica", "promote", TOPIC)
    shows(target, expected)


def shows(broker: BrokerProcess, expected: dict[tuple[int, bytes], bytes]) -> None:
    """Wait until a reader finds the expected state. One that two passes overtake reads once more."""
    until(
        "a reader finds the state",
        lambda: last_values(broker.bootstrap_servers) == expected,
        lambda: broker.bootstrap_servers,
    )


def kill(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def wait_for_records(writer: KeyedWriter, more: int) -> None:
    """Wait until this many more records are acknowledged, so that each kill finds something to undo."""
    wanted = len(writer.records) + more
    until(
        "the writer goes on",
        lambda: len(writer.records) >= wanted,
        lambda: f"{len(writer.records)} of {wanted} records",
    )


def status(typed: TypedCommands) -> dict[str, Any]:
    """Returns the link as JSON."""
    found: dict[str, Any] = typed.shown("replica", "status", "dr")
    return found


def is_level(typed: TypedCommands, source: BrokerProcess) -> bool:
    """Returns whether all partitions are synced up to where the source ends now."""
    found = status(typed)["partitions"]
    synced = {each["partition"]: each["synced_end"] for each in found}
    return synced == high_watermarks(source.bootstrap_servers, TOPIC, PARTITIONS)
