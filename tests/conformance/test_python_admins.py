"""The admin clients of kafka-python and confluent-kafka (librdkafka), call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaResourceType
from kafka.errors import InvalidPartitionsError, SecurityDisabledError

from tests.harness.clients import ConfluentClient, create_topic

SECONDS = 20


@pytest.fixture
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def only(futures: dict[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(SECONDS)


def test_librdkafka_adds_partitions(
    confluent: AdminClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("growing")
    create_topic(bootstrap, topic)

    only(confluent.create_partitions([NewPartitions(topic, 3)]))

    assert sorted(confluent.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == [
        0,
        1,
        2,
    ]
    with pytest.raises(KafkaException, match="Topic already has 3 partition"):
        only(confluent.create_partitions([NewPartitions(topic, 3)]))


def test_librdkafka_describes_cluster_and_topics(
    confluent: AdminClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("described")
    create_topic(bootstrap, topic, partitions=2)

    cluster = confluent.describe_cluster(include_authorized_operations=True).result(SECONDS)
    described = only(
        confluent.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    )

    assert len(cluster.cluster_id) == 22
    assert [node.id for node in cluster.nodes] == [cluster.controller.id] == [1]
    assert AclOperation.IDEMPOTENT_WRITE in cluster.authorized_operations
    assert [partition.id for partition in described.partitions] == [0, 1]
    assert {p.leader.id for p in described.partitions} == {1}
    assert set(described.authorized_operations) == {
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE,
        AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }  # fmt: skip


def test_librdkafka_finds_no_acls(confluent: AdminClient) -> None:
    """It passes over SECURITY_DISABLED, with Kafka too."""
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip

    assert confluent.describe_acls(anything).result(SECONDS) == []


def test_librdkafka_asks_for_scram_credentials(confluent: AdminClient) -> None:
    assert confluent.describe_user_scram_credentials().result(SECONDS) == {}
    with pytest.raises(KafkaException, match="alice"):
        only(confluent.describe_user_scram_credentials(["alice"]))


def test_librdkafka_deletes_records(
    confluent: AdminClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("short")
    create_topic(bootstrap, topic)
    ConfluentClient().produce(bootstrap, {topic: "none"}, [(b"k", b"v")] * 3)

    deleted = only(confluent.delete_records([TopicPartition(topic, 0, 2)]))

    assert deleted.low_watermark == 2


def test_kafka_python_adds_partitions(
    kafka_python: KafkaAdminClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("growing")
    create_topic(bootstrap, topic)

    kafka_python.create_partitions({topic: 3})

    (described,) = kafka_python.describe_topics([topic])
    assert len(described["partitions"]) == 3
    with pytest.raises(InvalidPartitionsError, match="Topic already has 3 partition"):
        kafka_python.create_partitions({topic: 3})


def test_kafka_python_describes_topics_page_by_page(
    kafka_python: KafkaAdminClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("paged")
    create_topic(bootstrap, topic, partitions=3)

    first = kafka_python.describe_topic_partitions([topic], response_partition_limit=2)
    rest = kafka_python.describe_topic_partitions([topic], cursor=first["next_cursor"])

    assert [p["partition_index"] for p in first["topics"][0]["partitions"]] == [0, 1]
    assert [p["partition_index"] for p in rest["topics"][0]["partitions"]] == [2]
    assert rest["next_cursor"] is None


def test_kafka_python_describes_cluster_directories_and_producers(
    kafka_python: KafkaAdminClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("described")
    create_topic(bootstrap, topic)

    cluster = kafka_python.describe_cluster()
    directories = kafka_python.describe_log_dirs()
    producers = kafka_python.describe_producers([KafkaTopicPartition(topic, 0)])

    assert len(cluster["cluster_id"]) == 22
    assert cluster["controller_id"] == 1
    assert topic in str(directories)
    assert list(producers) == [KafkaTopicPartition(topic, 0)]


def test_kafka_python_lists_what_there_is_none_of(
    kafka_python: KafkaAdminClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("listed")
    create_topic(bootstrap, topic)

    assert not kafka_python.list_partition_reassignments()
    assert topic in str(kafka_python.list_config_resources())
    assert not kafka_python.describe_user_scram_credentials()
    with pytest.raises(SecurityDisabledError):
        kafka_python.describe_acls(
            ACLFilter(
                principal=None,
                host="*",
                operation=ACLOperation.ANY,
                permission_type=ACLPermissionType.ANY,
                resource_pattern=ResourcePatternFilter(
                    KafkaResourceType.ANY, None, ACLResourcePatternType.ANY
                ),
            )
        )
