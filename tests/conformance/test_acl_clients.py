"""ACLs with clients as they are: Kafka's own kafka-acls, librdkafka, kafka-python."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from pipeline.spark.jars import JarsUnavailable
from server.config.authorization_config import AUTHORIZERS
from tests.harness.broker_process import BrokerProcess
from tests.harness.kafka_tools import KafkaTools, Ran

SECONDS = 20
ENTRY = re.compile(r"\(principal=(.*?), host=(.*?), operation=(\w+), permissionType=(\w+)\)")
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker on which the only clients, which are anonymous, may change ACLs and little else."""
    properties = {
        "authorizer.class.name": AUTHORIZERS[0],
        "allow.everyone.if.no.acl.found": "true",
    }
    with BrokerProcess(tmp_path_factory.mktemp("acls"), properties) as running:
        yield running


@pytest.fixture(scope="module")
def tools(broker: BrokerProcess) -> Iterator[KafkaTools]:
    try:
        running = KafkaTools(broker.bootstrap_servers)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with running:
        yield running


def entries(ran: Ran) -> set[tuple[str, ...]]:
    assert ran.code == 0, ran
    return set(ENTRY.findall(ran.output))


def test_kafka_acls_adds_lists_and_removes(tools: KafkaTools) -> None:
    tools.run(
        "kafka-acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", "bills",
    )  # fmt: skip
    tools.run(
        "kafka-acls", "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1",
        "--operation", "Read", "--topic", "bil", "--resource-pattern-type", "prefixed",
    )  # fmt: skip

    of_alice = {("User:alice", "*", each, "ALLOW") for each in ("WRITE", "DESCRIBE", "CREATE")}
    of_bob = {("User:bob", "10.0.0.1", "READ", "DENY")}
    listed = tools.run("kafka-acls", "--list", "--topic", "bills")
    assert entries(listed) == of_alice
    matching = ("--topic", "bills", "--resource-pattern-type", "match")
    listed = tools.run("kafka-acls", "--list", *matching)
    assert entries(listed) == of_alice | of_bob
    assert "ResourcePattern(resourceType=TOPIC, name=bil, patternType=PREFIXED)" in listed.output

    removed = tools.run("kafka-acls", "--remove", "--force", *matching)
    assert removed.code == 0, removed
    assert entries(tools.run("kafka-acls", "--list")) == set()


def test_an_acl_of_librdkafka_refuses_its_own_producer(broker: BrokerProcess) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(settings)
    producer = Producer({**settings, "message.timeout.ms": 10_000})
    outcomes: list[object] = []
    producer.produce("orders", b"1", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(SECONDS)
    assert outcomes == [None]

    denied = AclBinding(
        ResourceType.TOPIC, "ord", ResourcePatternType.PREFIXED, "User:ANONYMOUS", "*",
        AclOperation.WRITE, AclPermissionType.DENY,
    )  # fmt: skip
    for future in admin.create_acls([denied]).values():
        future.result(SECONDS)
    producer.produce("orders", b"2", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(SECONDS)
    assert [error.code() for error in outcomes[1:]] == [TOPIC_AUTHORIZATION_FAILED]  # type: ignore[attr-defined]

    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    assert admin.describe_acls(everything).result(SECONDS) == [denied]
    (future,) = admin.delete_acls([everything]).values()
    assert future.result(SECONDS) == [denied]
    assert admin.describe_acls(everything).result(SECONDS) == []


def test_an_invalid_acl_is_an_error_of_the_client(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wrong = AclBinding(
        ResourceType.BROKER, "7", ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.ALTER, AclPermissionType.ALLOW,
    )  # fmt: skip
    (future,) = admin.create_acls([wrong]).values()
    with pytest.raises(KafkaException, match="The only valid name for the CLUSTER resource"):
        future.result(SECONDS)
