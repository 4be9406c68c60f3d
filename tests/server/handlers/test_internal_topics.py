"""The answer of every API that can name a topic, for every internal topic in every state.

The table is checked against `protocol/wire/api_keys.py`: an API that is in neither `REQUESTS` nor
`NAMES_NO_TOPIC` fails the first test. Whatever a client requests, the topics that store groups and
transactions stay, with all their partitions.

Apache Kafka 4.3.1 was asked the same, for a topic that is online and after its deletion. It answers the
same, except for these, where this broker is stricter on purpose:

    DeleteTopics       of the topics of coordinators: NONE, and they are gone
    CreatePartitions   NONE, after which records are not in the partition where they are expected
    Metadata           UNKNOWN_TOPIC_OR_PARTITION for a missing topic, and creates it
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from protocol.messages import (
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch_snapshot,
    incremental_alter_configs,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
    write_txn_markers,
)
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from server.topics.topic import INTERNAL_TOPICS, Topic
from storage.log.directory import LogDirectory
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    produce_request,
    serving_broker,
)

TOPIC_RESOURCE, SET = 2, 0
KEPT = frozenset({"__consumer_offsets", "__transaction_state"})
STATES = ("online", "offline", "paused", "being deleted")
PARTITIONS = 2
NODE_ID = 1


def configs_of(module: Any, name: str, config: Any) -> Any:
    resource = module.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configs=(config,)
    )
    return (resource,)


BY_ID: dict[ApiKey, Callable[[UUID], Message]] = {
    ApiKey.PRODUCE: lambda topic_id: produce_request("", batch_of(1), topic_id=topic_id),
    ApiKey.FETCH: lambda topic_id: fetch_request([("", 0, 0)], topic_id=topic_id),
}
"""The APIs whose highest version names a topic by its id, with that request."""

LAST_BY_NAME = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12}
"""The last version of each that names a topic by its name."""

REQUESTS: dict[ApiKey, Callable[[str], Message]] = {
    ApiKey.PRODUCE: lambda name: produce_request(name, batch_of(1)),
    ApiKey.FETCH: lambda name: fetch_request([(name, 0, 0)]),
    ApiKey.LIST_OFFSETS: lambda name: list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=(
            list_offsets.ListOffsetsTopic(
                name=name,
                partitions=(list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1),),
            ),
        ),
    ),
    ApiKey.METADATA: lambda name: metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(name=name),), allow_auto_topic_creation=True
    ),
    ApiKey.OFFSET_COMMIT: lambda name: offset_commit.OffsetCommitRequest(
        group_id="group",
        topics=(
            offset_commit.OffsetCommitRequestTopic(
                name=name,
                partitions=(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=""
                    ),
                ),
            ),
        ),
    ),
    ApiKey.OFFSET_FETCH: lambda name: offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(
                group_id="group",
                topics=(offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=(0,)),),
            ),
        )
    ),
    ApiKey.CREATE_TOPICS: lambda name: create_topics.CreateTopicsRequest(
        topics=(
            create_topics.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
            ),
        )
    ),
    ApiKey.DELETE_TOPICS: lambda name: delete_topics.DeleteTopicsRequest(
        topics=(delete_topics.DeleteTopicState(name=name),), timeout_ms=1000
    ),
    ApiKey.DELETE_RECORDS: lambda name: delete_records.DeleteRecordsRequest(
        topics=(
            delete_records.DeleteRecordsTopic(
                name=name,
                partitions=(delete_records.DeleteRecordsPartition(partition_index=0, offset=-1),),
            ),
        ),
        timeout_ms=1000,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda name: (
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=(
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic=name,
                    partitions=(
                        offset_for_leader_epoch.OffsetForLeaderPartition(
                            partition=0, leader_epoch=0
                        ),
                    ),
                ),
            )
        )
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda name: add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="nobody",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=(0,)),
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: lambda name: write_txn_markers.WriteTxnMarkersRequest(
        markers=(
            write_txn_markers.WritableTxnMarker(
                producer_id=1,
                producer_epoch=0,
                transaction_result=False,
                topics=(
                    write_txn_markers.WritableTxnMarkerTopic(name=name, partition_indexes=(0,)),
                ),
                coordinator_epoch=0,
            ),
        )
    ),
    ApiKey.TXN_OFFSET_COMMIT: lambda name: txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="nobody",
        group_id="group",
        producer_id=1,
        producer_epoch=0,
        topics=(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=(
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=""
                    ),
                ),
            ),
        ),
    ),
    ApiKey.DESCRIBE_CONFIGS: lambda name: describe_configs.DescribeConfigsRequest(
        resources=(
            describe_configs.DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
            ),
        )
    ),
    ApiKey.ALTER_CONFIGS: lambda name: alter_configs.AlterConfigsRequest(
        resources=configs_of(
            alter_configs,
            name,
            alter_configs.AlterableConfig(name="segment.bytes", value="1048576"),
        ),
        validate_only=False,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda name: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=(
            alter_replica_log_dirs.AlterReplicaLogDir(
                path="/not/one/of/ours",
                topics=(
                    alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=(0,)),
                ),
            ),
        )
    ),
    ApiKey.DESCRIBE_LOG_DIRS: lambda name: describe_log_dirs.DescribeLogDirsRequest(
        topics=(describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=(0,)),)
    ),
    ApiKey.CREATE_PARTITIONS: lambda name: create_partitions.CreatePartitionsRequest(
        topics=(create_partitions.CreatePartitionsTopic(name=name, count=9, assignments=None),),
        timeout_ms=1000,
        validate_only=False,
    ),
    ApiKey.ELECT_LEADERS: lambda name: elect_leaders.ElectLeadersRequest(
        topic_partitions=(elect_leaders.TopicPartitions(topic=name, partitions=(0,)),)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        lambda name: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=configs_of(
                incremental_alter_configs,
                name,
                incremental_alter_configs.AlterableConfig(
                    name="segment.bytes", config_operation=SET, value="1048576"
                ),
            ),
            validate_only=False,
        )
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        lambda name: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=(
                alter_partition_reassignments.ReassignableTopic(
                    name=name,
                    partitions=(
                        alter_partition_reassignments.ReassignablePartition(
                            partition_index=0, replicas=(NODE_ID + 1,)
                        ),
                    ),
                ),
            )
        )
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        lambda name: list_partition_reassignments.ListPartitionReassignmentsRequest(
            topics=(
                list_partition_reassignments.ListPartitionReassignmentsTopics(
                    name=name, partition_indexes=(0,)
                ),
            )
        )
    ),
    ApiKey.OFFSET_DELETE: lambda name: offset_delete.OffsetDeleteRequest(
        group_id="nobody",
        topics=(
            offset_delete.OffsetDeleteRequestTopic(
                name=name,
                partitions=(offset_delete.OffsetDeleteRequestPartition(partition_index=0),),
            ),
        ),
    ),
    ApiKey.DESCRIBE_QUORUM: lambda name: describe_quorum.DescribeQuorumRequest(
        topics=(
            describe_quorum.AskedTopic(
                topic_name=name, partitions=(describe_quorum.AskedPartition(partition_index=0),)
            ),
        )
    ),
    ApiKey.FETCH_SNAPSHOT: lambda name: fetch_snapshot.FetchSnapshotRequest(
        topics=(
            fetch_snapshot.TopicSnapshot(
                name=name,
                partitions=(
                    fetch_snapshot.PartitionSnapshot(
                        partition=0,
                        current_leader_epoch=-1,
                        snapshot_id=fetch_snapshot.SnapshotId(end_offset=1, epoch=1),
                        position=0,
                    ),
                ),
            ),
        )
    ),
    ApiKey.DESCRIBE_PRODUCERS: lambda name: describe_producers.DescribeProducersRequest(
        topics=(describe_producers.TopicRequest(name=name, partition_indexes=(0,)),)
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        lambda name: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=(describe_topic_partitions.TopicRequest(name=name),)
        )
    ),
}
"""One request for each API that can name a topic; sent in the version of `VERSIONS`."""

VERSIONS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    **LAST_BY_NAME,
}
"""Where it is not the highest; from the next one on these speak of topics otherwise."""

NAMES_NO_TOPIC = frozenset(
    {
        ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.DESCRIBE_ACLS,
        ApiKey.DELETE_GROUPS, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.LIST_CONFIG_RESOURCES, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.UPDATE_FEATURES,
        ApiKey.ALTER_CLIENT_QUOTAS,
    }
)  # fmt: skip
"""They name groups, transactional ids or nothing; a subscription only waits for a topic. Those of ACLs
may name one that they never look for: there is no authorizer."""


def test_every_api_says_whether_it_can_name_a_topic() -> None:
    assert REQUESTS.keys() | NAMES_NO_TOPIC == APIS.keys()
    assert not REQUESTS.keys() & NAMES_NO_TOPIC


def codes(response: object) -> Iterator[ErrorCode]:
    """Every error in an answer, at any depth."""
    if isinstance(response, tuple):
        for each in response:
            yield from codes(each)
    elif dataclasses.is_dataclass(response):
        for field in dataclasses.fields(response):
            value = getattr(response, field.name)
            if field.name.endswith("error_code"):
                yield ErrorCode(value)
            else:
                yield from codes(value)


async def answer(served: ServedBroker, key: ApiKey, name: str) -> str:
    """The errors that an API answers with, "NONE" if there are none."""
    version = VERSIONS.get(key, APIS[key].version_max)
    return await answer_to(served, key, REQUESTS[key](name), version)


async def answer_by_id(served: ServedBroker, key: ApiKey, topic_id: UUID) -> str:
    """The same for a topic that is named by its id."""
    return await answer_to(served, key, BY_ID[key](topic_id), APIS[key].version_max)


async def answer_to(served: ServedBroker, key: ApiKey, request: Message, version: int) -> str:
    response = await served.call(request, version, APIS[key].response_type)
    return " ".join(sorted({code.name for code in codes(response) if code})) or "NONE"


@asynccontextmanager
async def topic_in(
    state: str, name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ServedBroker, UUID]]:
    """A broker with an internal topic in one state, and the topic's id."""
    counts = dict.fromkeys(
        ("offsets_topic_num_partitions", "transaction_state_log_num_partitions"), str(PARTITIONS)
    )
    async with serving_broker(path, **counts) as served:
        topic = await served.create(name, PARTITIONS)
        may_remove = threading.Event()
        if state == "offline":
            for log in topic.logs():
                log.go_offline("a disk failed")
        elif state == "paused":
            await served.broker._pauses.pause(topic.id)
        elif state == "being deleted":
            remove = LogDirectory.delete_topic
            monkeypatch.setattr(
                LogDirectory,
                "delete_topic",
                lambda *arguments: may_remove.wait(20) and remove(*arguments),
            )
            assert await served.broker.topics.delete(topic) is None
        try:
            yield served, topic.id
        finally:
            may_remove.set()
            monkeypatch.undo()


def is_same(before: Topic | None, after: Topic | None) -> bool:
    """Whether a topic is still there, or still absent, with all its partitions."""
    if before is None or after is None:
        return before is after
    return before.id == after.id and len(after.partitions) == len(before.partitions)


NONE = "NONE"
STORAGE, UNKNOWN = "KAFKA_STORAGE_ERROR", "UNKNOWN_TOPIC_OR_PARTITION"
INVALID, NO_LEADER = "INVALID_TOPIC_EXCEPTION", "LEADER_NOT_AVAILABLE"
NO_PRODUCER, NO_GROUP = "INVALID_PRODUCER_ID_MAPPING", "GROUP_ID_NOT_FOUND"
FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
NO_DIRECTORY, NO_REPLICA = "LOG_DIR_NOT_FOUND", "INVALID_REPLICA_ASSIGNMENT"
NOT_NEEDED, NO_PREFERRED_LEADER = "ELECTION_NOT_NEEDED", "PREFERRED_LEADER_NOT_AVAILABLE"
UNKNOWN_ID = "UNKNOWN_TOPIC_ID"
EXISTS, NO_COORDINATOR = "TOPIC_ALREADY_EXISTS", "COORDINATOR_NOT_AVAILABLE"

ANSWERS: dict[ApiKey, tuple[str, str, str]] = {
    # online or paused, offline, being deleted
    ApiKey.PRODUCE: (INVALID, STORAGE, UNKNOWN),
    ApiKey.FETCH: (NONE, STORAGE, UNKNOWN),
    ApiKey.LIST_OFFSETS: (NONE, STORAGE, UNKNOWN),
    ApiKey.METADATA: (NONE, NO_LEADER, INVALID),
    ApiKey.OFFSET_COMMIT: (NONE, NONE, UNKNOWN),
    ApiKey.OFFSET_FETCH: (NONE, NONE, NONE),
    ApiKey.CREATE_TOPICS: (EXISTS, EXISTS, NONE),
    ApiKey.DELETE_TOPICS: (INVALID, INVALID, UNKNOWN),
    ApiKey.DELETE_RECORDS: (INVALID, STORAGE, UNKNOWN),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (NONE, STORAGE, UNKNOWN),
    ApiKey.ADD_PARTITIONS_TO_TXN: (FORBIDDEN, FORBIDDEN, FORBIDDEN),
    ApiKey.WRITE_TXN_MARKERS: (NONE, STORAGE, UNKNOWN),
    ApiKey.TXN_OFFSET_COMMIT: (NO_PRODUCER, NO_PRODUCER, UNKNOWN),
    ApiKey.DESCRIBE_CONFIGS: (NONE, NONE, UNKNOWN),
    ApiKey.ALTER_CONFIGS: (NONE, NONE, UNKNOWN),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (NO_DIRECTORY, NO_DIRECTORY, NO_DIRECTORY),
    ApiKey.DESCRIBE_LOG_DIRS: (NONE, NONE, NONE),
    ApiKey.CREATE_PARTITIONS: (INVALID, INVALID, UNKNOWN),
    ApiKey.ELECT_LEADERS: (NOT_NEEDED, NO_PREFERRED_LEADER, UNKNOWN),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (NONE, NONE, UNKNOWN),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (NO_REPLICA, NO_REPLICA, UNKNOWN),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (NONE, NONE, NONE),
    ApiKey.OFFSET_DELETE: (NO_GROUP, NO_GROUP, NO_GROUP),
    ApiKey.DESCRIBE_QUORUM: (UNKNOWN, UNKNOWN, UNKNOWN),
    ApiKey.FETCH_SNAPSHOT: (UNKNOWN, UNKNOWN, UNKNOWN),
    ApiKey.DESCRIBE_PRODUCERS: (NONE, STORAGE, UNKNOWN),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (NONE, NO_LEADER, UNKNOWN),
}

EXCEPTIONS: dict[tuple[str, ApiKey], tuple[str, str, str]] = {
    # The group's commit goes to this topic.
    ("__consumer_offsets", ApiKey.OFFSET_COMMIT): (NONE, NO_COORDINATOR, UNKNOWN),
    # Nothing here uses it: share groups are not served.
    ("__share_group_state", ApiKey.DELETE_TOPICS): (NONE, NONE, UNKNOWN),
    # The broker creates it once more if it has events to write.
    ("__compaction_events", ApiKey.DELETE_TOPICS): (NONE, NONE, UNKNOWN),
}

LAST = (ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS)
"""What changes the state that a topic is in comes after all others."""


def expected(name: str, state: str) -> dict[str, str]:
    column = STATES.index("online" if state == "paused" else state)
    return {
        key.name: EXCEPTIONS.get((name, key), ANSWERS[key])[min(column, 2)]
        for key in sorted(ANSWERS)
    }


def expected_by_id(state: str) -> dict[str, str]:
    """As by its name; an id that is not there has an error of its own."""
    column = min(STATES.index("online" if state == "paused" else state), 2)
    gone = {key.name: UNKNOWN_ID for key in BY_ID}
    return gone if state == "being deleted" else {key.name: ANSWERS[key][column] for key in BY_ID}


def test_every_api_that_can_name_a_topic_is_in_the_table() -> None:
    assert ANSWERS.keys() == REQUESTS.keys()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_what_every_api_answers_for_an_internal_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, state: str
) -> None:
    order = [key for key in sorted(REQUESTS) if key not in LAST]
    if name not in KEPT and state != "being deleted":
        order += reversed(LAST)
    else:
        order += LAST
    found: dict[str, str] = {}
    async with topic_in(state, name, tmp_path, monkeypatch) as (served, topic_id):
        before = served.broker.topics.get(name)
        found_by_id = {key.name: await answer_by_id(served, key, topic_id) for key in BY_ID}
        assert is_same(before, served.broker.topics.get(name))
        for key in order:
            found[key.name] = await answer(served, key, name)
            if key not in LAST:
                assert is_same(before, served.broker.topics.get(name)), key
        if name in KEPT and before is not None:
            assert is_same(before, served.broker.topics.get(name))
    assert found == expected(name, state)
    assert found_by_id == expected_by_id(state)


@pytest.mark.parametrize("name", sorted(KEPT))
async def test_a_topic_of_a_coordinator_is_not_deleted_by_its_id_either(
    tmp_path: Path, name: str
) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create(name)
        request = delete_topics.DeleteTopicsRequest(
            topics=(delete_topics.DeleteTopicState(topic_id=topic.id),), timeout_ms=1000
        )
        response = await served.call(request, 6, delete_topics.DeleteTopicsResponse)
        assert response.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert served.broker.topics.get(name) is topic
