"""Consumer groups with real clients: members come, go and die while a topic is written to.

Each run ends with every acknowledged record handled at least once, the ends committed, and nobody
stuck.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.conftest import member_or_skip
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.group_run import GroupRun, until

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
JAVA_COOPERATIVE = {
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
}
CONSUMER_PROTOCOL = {"group.protocol": "consumer"}
PARTITIONS = 6

CLIENTS = [
    pytest.param("confluent-kafka", {}, id="confluent-kafka"),
    pytest.param("confluent-kafka", COOPERATIVE, id="confluent-kafka-cooperative"),
    pytest.param("confluent-kafka", CONSUMER_PROTOCOL, id="confluent-kafka-consumer-protocol"),
    pytest.param("kafka-python", {}, id="kafka-python"),
    pytest.param("aiokafka", {}, id="aiokafka"),
    pytest.param("kcat", {}, id="kcat"),
    pytest.param("java-3.9", {}, id="java-3.9"),
    pytest.param("java-4.3", JAVA_COOPERATIVE, id="java-4.3-cooperative"),
    pytest.param("java-4.3", CONSUMER_PROTOCOL, id="java-4.3-consumer-protocol"),
    pytest.param("kafkajs", {}, id="kafkajs"),
    pytest.param("franz-go", {}, id="franz-go-cooperative"),
]


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of this file's own: it is killed."""
    properties = {
        "group.initial.rebalance.delay.ms": 200,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.heartbeat.interval.ms": 500,
        "offsets.topic.num.partitions": 3,
    }
    with BrokerProcess(tmp_path_factory.mktemp("groups"), properties) as process:
        yield process


@contextmanager
def run_of(broker: BrokerProcess, folder: Path, client: str, topic: str) -> Iterator[GroupRun]:
    member_or_skip(client)
    create_topic(broker.bootstrap_servers, topic, partitions=PARTITIONS)
    run = GroupRun(folder, broker.bootstrap_servers, topic, client)
    try:
        yield run
    finally:
        run.end()


@pytest.mark.parametrize(("client", "properties"), CLIENTS)
def test_three_members_come_and_go_and_die_and_the_broker_dies_too(
    group_broker: BrokerProcess,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    client: str,
    properties: dict[str, str],
) -> None:
    topic = f"work-{request.node.callspec.id}"
    with run_of(group_broker, tmp_path, client, topic) as run:
        run.write()
        first = run.start(properties)
        run.until_all_work(first)
        second, third = run.start(properties), run.start(properties)
        run.until_all_work(first, second, third)

        group_broker.kill()
        group_broker.start()
        run.until_all_work(first, second, third)

        third.leave()
        run.until_all_work(first, second)
        second.kill()
        run.stop_writing()
        run.until_all_is_handled()
        first.leave()

        before = set(run.written)
        last = run.start(properties)
        run.write()
        run.until_all_work(last)
        run.stop_writing()
        run.until_all_is_handled()
        assert not before & set(last.handled()), "what was committed was handled again"
        last.leave()
        until("the group is empty", lambda: run.state() == "EMPTY with 0 members", run.state)


@pytest.mark.parametrize(
    ("client", "properties"),
    [
        pytest.param("confluent-kafka", COOPERATIVE, id="confluent-kafka-cooperative"),
        pytest.param("java-4.3", {}, id="java-4.3"),
    ],
)
def test_members_move_to_the_consumer_protocol_and_back_one_by_one(
    group_broker: BrokerProcess,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    client: str,
    properties: dict[str, str],
) -> None:
    with run_of(group_broker, tmp_path, client, f"moves-{request.node.callspec.id}") as run:
        run.write()
        old = [run.start(properties), run.start(properties)]
        run.until_all_work(*old)

        new = [run.start(CONSUMER_PROTOCOL)]
        run.until_all_work(*old, *new)
        old[0].leave()
        group_broker.kill()
        group_broker.start()
        run.until_all_work(old[1], *new)
        new.append(run.start(CONSUMER_PROTOCOL))
        old[1].leave()
        run.until_all_work(*new)

        back = run.start(properties)
        run.until_all_work(*new, back)
        for member in new:
            member.leave()
        run.until_all_work(back)
        run.stop_writing()
        run.until_all_is_handled()
        back.leave()


@pytest.mark.parametrize(
    "client", ["confluent-kafka", "kafka-python", "aiokafka", "java-4.3", "franz-go"]
)
def test_a_static_member_comes_back_and_nobody_rebalances(
    group_broker: BrokerProcess, tmp_path: Path, client: str
) -> None:
    # On a busy machine a client takes seconds to start again.
    patience = {"session.timeout.ms": "120000"}
    with run_of(group_broker, tmp_path, client, f"static-{client}") as run:
        run.write()
        members = [
            run.start({"group.instance.id": f"instance-{number}"} | patience) for number in (1, 2)
        ]
        run.until_all_work(*members)
        generation = run.generation()

        members[0].kill()
        back = run.start({"group.instance.id": "instance-1"} | patience)
        run.until_all_work(back, members[1])

        assert run.generation() == generation
        run.stop_writing()
        run.until_all_is_handled()
        for member in (back, members[1]):
            member.leave()


@pytest.mark.parametrize(
    "client",
    ["confluent-kafka", "kafka-python", "aiokafka", "java-3.9", "java-4.3", "kafkajs", "franz-go"],
)
def test_members_start_at_a_time_and_leave_a_paused_partition_alone(
    group_broker: BrokerProcess, tmp_path: Path, client: str
) -> None:
    with run_of(group_broker, tmp_path, client, f"seek-{client}") as run:
        now_ms = time.time_ns() // 1_000_000
        run.write_a_history(PARTITIONS, [now_ms - 1_000 * (200 - number) for number in range(200)])
        wanted = {(partition, offset) for partition, offset in run.written if offset >= 120}
        paused = {(partition, offset) for partition, offset in wanted if partition == 0}
        manner = {"start.ms": str(now_ms - 1_000 * 80), "pause": "0"}
        members = [run.start(manner), run.start(manner)]

        until("all but the paused", lambda: run.handled() >= wanted - paused, run.state)
        assert run.handled() == wanted - paused
        for member in members:
            member.resume()
        until("the paused too", lambda: run.handled() >= wanted, run.state)
        assert run.handled() == wanted
        until("all is committed", lambda: run.committed() == run.ends(), run.state)
        for member in members:
            member.leave()
