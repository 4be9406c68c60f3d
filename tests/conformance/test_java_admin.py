"""The Java Admin client, of both releases: what it asks for and what it is refused."""

from __future__ import annotations

from collections.abc import Callable

from tests.harness.java_client import JavaClient


def test_a_topic_is_created_described_and_deleted(
    java: JavaClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("admin")

    created, described, policy, size, default, offsets, listed, deleted, gone = java.admin(
        bootstrap,
        [
            f"create {topic} 3 1 cleanup.policy=compact segment.bytes=1048576",
            f"describe {topic}",
            f"config {topic} cleanup.policy",
            f"config {topic} segment.bytes",
            f"config {topic} delete.retention.ms",
            f"offsets {topic} 2",
            "list",
            f"delete {topic}",
            f"describe {topic}",
        ],
    )

    topic_id = created.removeprefix("ok ")
    assert described == f"ok {topic} 3 1 {topic_id}"
    assert policy == "ok compact DYNAMIC_TOPIC_CONFIG"
    assert size == "ok 1048576 DYNAMIC_TOPIC_CONFIG"
    assert default == "ok 86400000 DEFAULT_CONFIG"
    assert offsets == "ok 0 0 -1"
    assert topic in listed.removeprefix("ok ").split(",")
    assert deleted == "ok deleted"
    assert gone.startswith("error UnknownTopicOrPartitionException")


def test_what_cannot_be_created_is_refused_with_kafkas_errors(
    java: JavaClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("refused")

    first, again, replicated, bad_value, unknown_name, bad_topic, no_partitions = java.admin(
        bootstrap,
        [
            f"create {topic} 1 1",
            f"create {topic} 1 1",
            f"create {topic}-2 1 2",
            f"create {topic}-3 1 1 segment.bytes=many",
            f"create {topic}-4 1 1 no.such.config=1",
            f"create {topic}/5 1 1",
            f"create {topic}-6 0 1",
        ],
    )

    assert first.startswith("ok ")
    assert again.startswith("error TopicExistsException")
    assert replicated.startswith("error InvalidReplicationFactorException")
    assert bad_value.startswith("error InvalidConfigurationException")
    assert unknown_name.startswith("error InvalidConfigurationException")
    assert bad_topic.startswith("error InvalidTopicException")
    assert no_partitions.startswith("error InvalidPartitionsException")


def test_a_topic_made_again_has_an_id_of_its_own(
    java: JavaClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("again")

    first, _, second = java.admin(
        bootstrap, [f"create {topic} 1 1", f"delete {topic}", f"create {topic} 1 1"]
    )

    assert first.startswith("ok ")
    assert second.startswith("ok ")
    assert first != second


def test_a_topic_is_configured_anew_while_it_is_there(
    java: JavaClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("configured")

    _, altered, policy, retention, bad_value, bad_name, nowhere, unchanged = java.admin(
        bootstrap,
        [
            f"create {topic} 1 1 retention.ms=1000",
            f"alter {topic} APPEND:cleanup.policy=compact DELETE:retention.ms",
            f"config {topic} cleanup.policy",
            f"config {topic} retention.ms",
            f"alter {topic} SET:retention.ms=soon",
            f"alter {topic} SET:no.such.config=1",
            f"alter {topic}-2 SET:retention.ms=1",
            f"config {topic} retention.ms",
        ],
    )

    assert altered == "ok altered"
    assert policy == "ok delete,compact DYNAMIC_TOPIC_CONFIG"
    assert retention == unchanged == "ok 604800000 DEFAULT_CONFIG"
    assert bad_value.startswith("error InvalidConfigurationException Invalid value soon for")
    assert bad_name.startswith("error InvalidConfigurationException Unknown topic config name")
    assert nowhere.startswith("error UnknownTopicOrPartitionException")


def test_records_are_deleted_up_to_an_offset(
    java: JavaClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic, table = topic_name("shortened"), topic_name("table")
    java.admin(bootstrap, [f"create {topic} 1 1", f"create {table} 1 1 cleanup.policy=compact"])
    records = [(b"key", b"%d" % number) for number in range(5)]
    java.produce(bootstrap, {topic: "none", table: "none"}, records)

    some, too_many, offsets, all_of_it, compacted = java.admin(
        bootstrap,
        [
            f"delete-records {topic} 0 3",
            f"delete-records {topic} 0 6",
            f"offsets {topic} 0",
            f"delete-records {topic} 0 -1",
            f"delete-records {table} 0 1",
        ],
    )

    assert some == "ok 3"
    assert too_many.startswith("error OffsetOutOfRangeException")
    assert offsets.startswith("ok 3 5 ")
    assert all_of_it == "ok 5"
    assert compacted.startswith("error PolicyViolationException")
    assert list(java.consume(bootstrap, [topic])) == []


def test_the_cleaners_budget_is_changed_and_described_and_what_is_fixed_is_refused(
    java: JavaClient, bootstrap: str
) -> None:
    rate = "log.cleaner.io.max.bytes.per.second"

    altered, own, fixed, deleted, default = java.admin(
        bootstrap,
        [
            f"alter broker:1 SET:{rate}=50000000",
            f"config broker:1 {rate}",
            "alter broker:1 SET:num.partitions=7",
            f"alter broker:1 DELETE:{rate}",
            f"config broker:1 {rate}",
        ],
    )

    assert (altered, deleted) == ("ok altered", "ok altered")
    assert own == "ok 5.0E7 DYNAMIC_BROKER_CONFIG"
    assert fixed.startswith("error InvalidRequestException Cannot update these configs dynamically")
    assert default == "ok 1.7976931348623157E308 DEFAULT_CONFIG"


def test_a_topic_is_given_more_partitions(
    java: JavaClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("growing")

    _, grown, described, offsets, again, fewer, nowhere = java.admin(
        bootstrap,
        [
            f"create {topic} 1 1",
            f"grow {topic} 3",
            f"describe {topic}",
            f"offsets {topic} 2",
            f"grow {topic} 3",
            f"grow {topic} 2",
            f"grow {topic}-2 2",
        ],
    )

    assert grown == "ok grown"
    assert described.startswith(f"ok {topic} 3 1 ")
    assert offsets == "ok 0 0 -1"
    assert again == "error InvalidPartitionsException Topic already has 3 partition(s)."
    assert fewer.startswith(f"error InvalidPartitionsException The topic {topic} currently has 3")
    assert nowhere.startswith("error UnknownTopicOrPartitionException")


def test_the_cluster_its_directories_and_producers_are_described(
    java: JavaClient, bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("described")
    java.admin(bootstrap, [f"create {topic} 1 1"])
    java.produce(bootstrap, {topic: "none"}, [(b"key", b"%d" % number) for number in range(5)])

    cluster, directories, producers = java.admin(
        bootstrap, ["cluster", "dirs", f"producers {topic} 0"]
    )

    cluster_id, controller, nodes = cluster.removeprefix("ok ").split()
    assert (len(cluster_id), controller, nodes) == (22, "1", "1")
    count, error, fits = directories.removeprefix("ok ").split()
    assert (int(count) >= 1, error, fits) == (True, "null", "true")
    assert producers == "ok 0 4"


def test_what_there_is_none_of_is_said_as_kafka_says_it(java: JavaClient, bootstrap: str) -> None:
    acls, someone, *none = java.admin(
        bootstrap,
        ["acls", "scram-of alice", "reassignments", "quotas", "scram", "client-metrics"],
    )

    assert acls == "error SecurityDisabledException No Authorizer is configured on the broker"
    assert someone.startswith("error ResourceNotFoundException")
    assert none == ["ok 0"] * 4
