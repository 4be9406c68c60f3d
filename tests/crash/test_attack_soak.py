"""An hour of everything that clients may do to a broker, with kills, cleaning and honest clients.

Two identical rounds: in each every attack of `tests/harness/attacks.py` runs beside a client with
small requests, while a writer keeps a compacted topic busy, the cleaner never rests and the broker is
killed now and then. What is compared at the end: nothing acknowledged is lost; memory at rest after
the second round is what it was after the first, and below the ceiling; descriptors are back where
they were once the topics are deleted; no honest request waited for long.

KOMPAKT_ATTACK_SOAK=1 runs all of it; without, a few attacks in one round. KOMPAKT_ATTACKS names those
to run, with commas between.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from protocol.wire.api_keys import APIS
from tests.harness.attacks import BUSY, COMPACTED, SMALL, attacking, names
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import create_topic
from tests.harness.held_files import open_targets
from tests.harness.honest_client import TOPIC, HonestClient, percentile_99
from tests.harness.keyed_writer import KeyedWriter
from tests.harness.large_requests import ATTACKED

IS_SOAK = "KOMPAKT_ATTACK_SOAK" in os.environ
ROUNDS = 2 if IS_SOAK else 1
REQUESTS = 1_200
SECONDS_EACH = 7.5 if IS_SOAK else 2.0
"""How long each attack lasts at least."""
FEW = ("bombs", "half-frames", "pipelines", "DescribeConfigs/resources/same")
KILL_EACH = 8
"""The broker is killed after so many attacks."""

QUIET_TIMES = 3
SECONDS_MAX = 0.025
"""An honest client's p99 is at most three times that of quiet, or this."""

MIB = 1 << 20
CEILING_BYTES = 1_900 * MIB
"""Of resident memory, at any time: 512 MiB of requests on their way, 512 of decoded ones, 256 of
answers, what one of each may take beyond its bound, 128 of the cleaner, 60 of the broker itself."""

STATE = "state"
PARTITIONS = 3
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0",
}
BROKER = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": str(16 * MIB)}


@dataclass
class Seen:
    """What was measured."""

    quiet: float = 0.0
    under: dict[str, float] = field(default_factory=dict)
    at_rest: list[int] = field(default_factory=list)
    peak: int = 0
    kills: int = 0

    @property
    def too_slow(self) -> dict[str, float]:
        bound = max(QUIET_TIMES * self.quiet, SECONDS_MAX)
        return {name: p99 for name, p99 in self.under.items() if p99 > bound}


def resident(pid: int, field_name: str = "VmRSS") -> int:
    """What the broker has in memory now, or had at most (`VmHWM`)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field_name}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(field_name)


def open_files(pid: int) -> list[str]:
    """Returns what the process's descriptors are open on, except the coordinators' topics, whose logs
    grow."""
    return [target for target in open_targets(pid) if "/__" not in target]


def descriptors(pid: int) -> int:
    return len(open_files(pid))


def prepare(broker: BrokerProcess) -> None:
    """The topics that attacks and honest clients use; those that an attack deleted come back."""
    there = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
    for topic in (ATTACKED, BUSY, TOPIC):
        if topic not in there.topics:
            create_topic(broker.bootstrap_servers, topic)
    for topic in (COMPACTED, STATE):
        if topic not in there.topics:
            create_topic(broker.bootstrap_servers, topic, partitions=PARTITIONS, config=CONFIG)


def attacks() -> list[str]:
    chosen = os.environ.get("KOMPAKT_ATTACKS")
    if chosen:
        return chosen.split(",")
    return list(names()) if IS_SOAK else list(FEW)


def steady(value: Callable[[], int], *, within: int) -> int:
    """Wait until a value has changed by no more than `within` for five looks; the value."""
    last, looks, deadline = value(), 0, time.monotonic() + 60
    while looks < 5 and time.monotonic() < deadline:
        time.sleep(0.5)
        now = value()
        looks = looks + 1 if abs(now - last) <= within else 0
        last = now
    return last


def run_round(
    broker: BrokerProcess, seen: Seen, choices: random.Random, say: Callable[[str], None]
) -> None:
    """Every attack once."""
    kills = set(range(KILL_EACH, len(attacks()), KILL_EACH))
    for number, name in enumerate(attacks()):
        if number in kills:
            seen.peak = max(seen.peak, resident(broker.pid, "VmHWM"))
            broker.kill()
            time.sleep(choices.random())
            broker.start()
            seen.kills += 1
        prepare(broker)
        honest = HonestClient(broker.port)
        honest.ask(30)
        seen.quiet = min(seen.quiet or 1.0, percentile_99(honest.ask(REQUESTS)))
        with attacking(broker.port, name):
            honest.ask(30)
            p99 = percentile_99(honest.ask(REQUESTS, seconds_min=SECONDS_EACH))
        honest.close()
        seen.under[name] = max(p99, seen.under.get(name, 0.0))
        say(f"{name}: p99 {1000 * p99:.1f} ms, RSS {resident(broker.pid) // MIB} MiB")
    seen.peak = max(seen.peak, resident(broker.pid, "VmHWM"))


def last_values(bootstrap: str) -> dict[tuple[int, bytes], bytes]:
    """What a reader of committed records finds last for each key of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[tuple[int, bytes], bytes] = {}
    ended: set[int] = set()
    consumer.subscribe([STATE])
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None, "nothing more to read, before the end"
            partition = message.partition()
            assert partition is not None
            if message.error() is not None:
                ended.add(partition)
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            if value is None:
                found.pop((partition, key), None)
            else:
                assert isinstance(value, bytes)
                found[partition, key] = value
    finally:
        consumer.close()
    return found


def expected_values(writer: KeyedWriter) -> dict[tuple[int, bytes], bytes]:
    found: dict[tuple[int, bytes], bytes] = {}
    for _, partition, _, _, key, value in sorted(writer.records, key=lambda row: row[2]):
        assert key is not None
        if value is None:
            found.pop((partition, key), None)
        else:
            found[partition, key] = value
    return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, BROKER) as running:
        yield running


def test_every_api_is_among_the_attacks() -> None:
    assert {name.split("/")[0] for name in names() if "/" in name} == {
        api.name for api in APIS.values()
    }


@pytest.mark.parametrize("name", [name for name in names() if name.endswith(SMALL)])
def test_an_attack_with_small_requests_goes_on(broker: BrokerProcess, name: str) -> None:
    prepare(broker)
    with attacking(broker.port, name):
        honest = HonestClient(broker.port)
        assert len(honest.ask(30)) == 30
        honest.close()


@pytest.mark.crash
def test_attacks_take_nothing_from_honest_clients_and_leave_nothing_behind(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KOMPAKT_SOAK_SEED", str(random.randrange(1 << 32))))

    def say(line: str) -> None:
        with capsys.disabled() if IS_SOAK else contextlib.nullcontext():
            print(line, flush=True)  # noqa: T201  pytest shows it with a failure

    say(f"KOMPAKT_SOAK_SEED={seed}")
    choices, seen = random.Random(seed), Seen()
    before = descriptors_without_topics(broker)
    prepare(broker)
    with KeyedWriter(broker.bootstrap_servers, STATE, partitions=PARTITIONS, seed=seed) as writer:
        for _ in range(ROUNDS):
            run_round(broker, seen, choices, say)
            # Memory goes back within ten seconds: two ticks of its upkeep.
            seen.at_rest.append(
                min(steady(partial(resident, broker.pid), within=MIB) for _ in "123")
            )
    expected = expected_values(writer)
    del writer  # and with it its producers' connections
    assert last_values(broker.bootstrap_servers) == expected
    delete_topics(broker)
    after = descriptors_when_at_most(broker, before)
    with capsys.disabled():
        print(report(seen))  # noqa: T201
        print(f"descriptors before the attacks {before}, after them {after}")  # noqa: T201
    assert after <= before, "\n".join(open_files(broker.pid))
    assert seen.peak <= CEILING_BYTES
    assert seen.at_rest[-1] <= 1.1 * seen.at_rest[0]
    if IS_SOAK:
        assert not seen.too_slow


def descriptors_when_at_most(broker: BrokerProcess, bound: int) -> int:
    """Wait up to a minute until the broker has closed what it held. Returns its descriptors."""
    deadline = time.monotonic() + 60
    while descriptors(broker.pid) > bound and time.monotonic() < deadline:
        time.sleep(0.2)
    return descriptors(broker.pid)


def delete_topics(broker: BrokerProcess) -> None:
    """Delete all topics but the coordinators' own, and wait until their files are gone."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    for deleted in admin.delete_topics(topics).values():
        deleted.result(60)
    # A busy disk may need minutes for large files, and the broker holds their directory meanwhile.
    while any(any(Path(broker.data_dir).glob(f"{name}.*")) for name in topics):
        time.sleep(0.2)


def descriptors_without_topics(broker: BrokerProcess) -> int:
    """Once the coordinators' topics are there and every other one was used, cleaned and deleted."""
    prepare(broker)
    with KeyedWriter(broker.bootstrap_servers, STATE, partitions=PARTITIONS, seed=0):
        last_values(broker.bootstrap_servers)
    # The first pass opens the compaction history, which stays open.
    wait_until_clean(f"127.0.0.1:{broker.http_port}", STATE)
    delete_topics(broker)
    return steady(partial(descriptors, broker.pid), within=0)


def report(seen: Seen) -> str:
    """For people."""
    lines = [
        f"\n{len(seen.under)} attacks, {seen.kills} kills; honest p99 quiet {1000 * seen.quiet:.2f} ms",
        f"at rest after each round: {', '.join(f'{each // MIB} MiB' for each in seen.at_rest)};"
        f" at most {seen.peak // MIB} MiB (ceiling {CEILING_BYTES // MIB})",
    ]
    slowest = sorted(seen.under.items(), key=lambda row: -row[1])[:15]
    lines += [f"{1000 * p99:8.1f} ms  {name}" for name, p99 in slowest]
    return "\n".join(lines)
