"""A real standby follows the coordinators of a real broker that commits and cleans.

At equal ends the digests of both sides are equal: `kompakt standby status --verify` compares them.
`test_three_standbys.py` kills the processes under this load.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cli.dump.checkpoints import verify_checkpoint
from server.admin.http_rules import ROOT
from storage.files.local_files import ReadOnlyFileSystem
from storage.files.paths import checkpoint_path
from storage.verify.log import verify_log
from storage.verify.verify import find_logs
from tests.crash.test_standby_kills import INTERNAL, led, standbys
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.clients import create_topic
from tests.harness.standby_process import (
    CURRENT_SECONDS_MAX,
    STEP_SECONDS,
    Json,
    StandbyProcess,
)

PARTITIONS = 100
SETTINGS = INTERNAL | {
    "offsets.topic.num.partitions": 4,
    "offsets.topic.segment.bytes": 1 << 20,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.segment.bytes": 1 << 20,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.delete.retention.ms": 0,
}
"""Small segments, which are cleaned as soon as they can be."""
OFFSETS_TOPIC, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"


class Load:
    """Commits offsets, with transactions and without, and deletes groups."""

    def __init__(
        self, broker: BrokerProcess, seed: int, *, groups: int = 8, partitions: int = PARTITIONS
    ) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._groups, self._partitions = groups, partitions
        self._offset = 0
        create_topic(broker.bootstrap_servers, "orders", partitions=partitions)

    def fill(self) -> None:
        """Commit an offset of every partition in every group."""
        self._offset += 1
        for number in range(self._groups):
            self._commit(f"group-{number}")

    def run(self, rounds: int) -> None:
        """Make some changes; each is durable when this returns."""
        for _ in range(rounds):
            self._offset += 1
            self._commit(f"group-{self._random.randrange(self._groups)}")
        self._transactions(f"t-{self._random.randrange(5)}")
        if self._random.random() < 0.5:
            self._delete(f"group-{self._random.randrange(self._groups)}")

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition("orders", each, self._offset) for each in range(self._partitions)]

    def _consumer(self, group: str) -> Consumer:
        servers = self._broker.bootstrap_servers
        return Consumer({"bootstrap.servers": servers, "group.id": group})

    def _commit(self, group: str) -> None:
        reader = self._consumer(group)
        reader.commit(offsets=self._places(), asynchronous=False)
        reader.close()

    def _transactions(self, name: str) -> None:
        servers = self._broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        producer.init_transactions(30)
        reader = self._consumer("in transactions")
        group = reader.consumer_group_metadata()
        for commits in (True, False, True):
            producer.begin_transaction()
            producer.send_offsets_to_transaction(self._places(), group, 30)
            if commits:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        if self._random.random() < 0.5:
            # Its coordinator aborts it when the id comes back.
            producer.begin_transaction()
            producer.send_offsets_to_transaction(self._places(), group, 30)
        reader.close()

    def _delete(self, group: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        for done in admin.delete_consumer_groups([group]).values():
            # It may not exist yet, or no longer.
            with suppress(KafkaException):
                done.result()


def clean(broker: BrokerProcess) -> None:
    """Clean all coordinators' partitions now."""
    for topic in (OFFSETS_TOPIC, TRANSACTION_STATE):
        job = called(
            f"127.0.0.1:{broker.http_port}", "POST", f"{ROOT}/topics/{topic}/now?force=true"
        )
        while not job["is_over"]:
            time.sleep(STEP_SECONDS)
            job = called(f"127.0.0.1:{broker.http_port}", "GET", f"{ROOT}/jobs/{job['id']}")


def called(address: str, method: str, path: str) -> Json:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    assert response.status < 300, (response.status, body)
    found: Json = json.loads(body)
    return found


def installs(copy: StandbyProcess) -> int:
    found = copy.status()
    assert found is not None
    return sum(each["installs"] for each in found["coordinators"])


def assert_equal_now(*copies: StandbyProcess) -> None:
    """Wait until the copies have everything; then the digest of each partition is the leader's."""
    for each in copies:
        deadline = time.monotonic() + CURRENT_SECONDS_MAX
        while not is_equal(verified(each), each):
            assert time.monotonic() < deadline, f"{each.status()}{each.tail()}"
            time.sleep(STEP_SECONDS)


def verified(copy: StandbyProcess) -> Sequence[Json]:
    copy.wait_until(lambda it: len(it["coordinators"]) == 2 and it["coordinators_reason"] is None)
    partitions: Sequence[Json] = called(copy.address, "POST", "/v1/standby/verification")[
        "partitions"
    ]
    return partitions


def is_equal(partitions: Sequence[Json], copy: StandbyProcess) -> bool:
    """Returns whether all partitions could be compared; those that could are equal."""
    different = [each for each in partitions if each["is_equal"] is False]
    assert not different, f"{different}{copy.tail()}"
    topics = {each["partition"].rpartition("-")[0] for each in partitions}
    return topics == {OFFSETS_TOPIC, TRANSACTION_STATE} and all(
        each["is_equal"] for each in partitions
    )


def test_a_standby_that_was_away_takes_checkpoints_twice_and_has_the_same_state(
    tmp_path: Path,
) -> None:
    with (
        BrokerProcess(tmp_path / "broker", SETTINGS) as broker,
        standbys(tmp_path, broker, 1) as (standby,),
    ):
        load = Load(broker, 1)
        load.run(10)
        assert_equal_now(standby)
        for _ in range(2):
            assert standby.stop() == 0
            load.run(40)
            clean(broker)
            load.run(5)
            standby.start()
            assert_equal_now(standby)
            assert installs(standby) > 0
        assert_leader_knows(broker, standby)
    assert_dump_log_finds_nothing(standby)


def assert_leader_knows(broker: BrokerProcess, copy: StandbyProcess) -> None:
    """The leader knows each followed topic, how far its copies are, and what was downloaded."""
    deadline = time.monotonic() + CURRENT_SECONDS_MAX
    # It learns where a copy ends by the next fetch.
    while lags(broker) != {OFFSETS_TOPIC: 0, TRANSACTION_STATE: 0}:
        assert time.monotonic() < deadline, f"{led(broker)}{copy.tail()}"
        time.sleep(STEP_SECONDS)
    (follower,) = led(broker)["followers"]
    partitions = {each["name"]: each["partitions"] for each in follower["coordinators"]}
    assert partitions == {OFFSETS_TOPIC: 4, TRANSACTION_STATE: 3}
    downloads = sum(each["checkpoints"] for each in follower["coordinators"])
    assert downloads >= installs(copy) > 0
    counted = samples(
        broker.metrics(),
        "kompakt_replog_follower_copy_checkpoints_total",
        follower=follower["id"],
    )
    assert sum(counted) == downloads


def lags(broker: BrokerProcess) -> dict[str, int]:
    """Returns how many offsets of each coordinator's topic the only follower lacks."""
    (follower,) = led(broker)["followers"]
    return {each["name"]: each["lag"] for each in follower["coordinators"]}


def assert_dump_log_finds_nothing(copy: StandbyProcess) -> None:
    """The stopped standby's files are a broker's files, and sound."""
    fs, checkpoints = ReadOnlyFileSystem(), 0
    for topic in copy.data_dir.glob("__*"):
        found = find_logs(fs, str(topic))
        assert found is not None
        for identity in found.logs:
            report = verify_log(fs, identity, was_clean=False, progress=lambda _: None)
            assert not [*report.findings, *verify_checkpoint(fs, identity)]
            checkpoints += fs.exists(checkpoint_path(identity.directory))
    assert checkpoints > 0
