"""One request for each API that needs a permission, about the resources of a `Scene`.

The requests are such that a client with every permission gets no authorization error; the table of rules
(`server/security/api_rules.py`) says which permissions each needs.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from protocol.wire.api_keys import ApiKey
from protocol.wire.schema import Message
from tests.harness.served_broker import batch_of

TOPIC = "orders"
GROUP = "team"
CONSUMER_GROUP = "crew"
TRANSACTIONAL_ID = "till"

_NUMBERS = itertools.count()


@dataclass
class Scene:
    """What exists: a topic with a record, a group with an offset, a transaction with the topic."""

    topic_id: UUID
    producer_id: int
    producer_epoch: int
    fresh: str = field(default_factory=lambda: f"fresh-{next(_NUMBERS)}")
    """A topic that does not exist."""
    transactional_id: str = ""
    doomed: str = ""
    """A topic that may be deleted."""
    doomed_group: str = ""
    doomed_acl: str = ""
    """The principal of an ACL that may be deleted."""


class _Messages:
    """The classes of an API's module, by their names."""

    def __init__(self, key: ApiKey) -> None:
        self._module = importlib.import_module(f"protocol.messages.{key.name.lower()}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


Make = Callable[[Scene, int, Any], Message]
REQUESTS: dict[ApiKey, Callable[[Scene, int], Message]] = {}


def _request(key: ApiKey) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        REQUESTS[key] = lambda scene, version: make(scene, version, _Messages(key))
        return make

    return register


@_request(ApiKey.PRODUCE)
def _produce(scene: Scene, version: int, m: Any) -> Message:
    data = m.PartitionProduceData(index=0, records=memoryview(batch_of(1)))
    topic = m.TopicProduceData(name=TOPIC, topic_id=scene.topic_id, partition_data=(data,))
    message: Message = m.ProduceRequest(
        transactional_id=TRANSACTIONAL_ID, acks=-1, timeout_ms=1000, topic_data=(topic,)
    )
    return message


@_request(ApiKey.FETCH)
def _fetch(scene: Scene, version: int, m: Any) -> Message:
    partition = m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = m.FetchTopic(topic=TOPIC, topic_id=scene.topic_id, partitions=(partition,))
    message: Message = m.FetchRequest(max_wait_ms=0, min_bytes=1, topics=(topic,))
    return message


@_request(ApiKey.LIST_OFFSETS)
def _list_offsets(scene: Scene, version: int, m: Any) -> Message:
    partition = m.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = m.ListOffsetsTopic(name=TOPIC, partitions=(partition,))
    message: Message = m.ListOffsetsRequest(replica_id=-1, topics=(topic,))
    return message


@_request(ApiKey.METADATA)
def _metadata(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.MetadataRequest(
        topics=(m.MetadataRequestTopic(name=TOPIC), m.MetadataRequestTopic(name=scene.fresh))
    )
    return message


@_request(ApiKey.OFFSET_COMMIT)
def _offset_commit(scene: Scene, version: int, m: Any) -> Message:
    partition = m.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = m.OffsetCommitRequestTopic(name=TOPIC, topic_id=scene.topic_id, partitions=(partition,))
    message: Message = m.OffsetCommitRequest(group_id=GROUP, topics=(topic,))
    return message


@_request(ApiKey.OFFSET_FETCH)
def _offset_fetch(scene: Scene, version: int, m: Any) -> Message:
    topic = m.OffsetFetchRequestTopics(name=TOPIC, topic_id=scene.topic_id, partition_indexes=(0,))
    old = m.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,))
    if version < 8:
        message: Message = m.OffsetFetchRequest(group_id=GROUP, topics=(old,))
    else:
        group = m.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
        message = m.OffsetFetchRequest(groups=(group,))
    return message


@_request(ApiKey.JOIN_GROUP)
def _join_group(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=(m.JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    return message


def _member(name: str, **more: Any) -> Make:
    def make(scene: Scene, version: int, m: Any) -> Message:
        message: Message = getattr(m, name)(group_id=GROUP, **more)
        return message

    return make


_request(ApiKey.HEARTBEAT)(_member("HeartbeatRequest", generation_id=1, member_id="nobody"))
_request(ApiKey.SYNC_GROUP)(
    _member("SyncGroupRequest", generation_id=1, member_id="nobody", assignments=())
)


@_request(ApiKey.LEAVE_GROUP)
def _leave_group(scene: Scene, version: int, m: Any) -> Message:
    nobody: dict[str, Any] = {"member_id": "nobody"}
    who = nobody if version < 3 else {"members": (m.MemberIdentity(**nobody),)}
    message: Message = m.LeaveGroupRequest(group_id=GROUP, **who)
    return message


@_request(ApiKey.CREATE_TOPICS)
def _create_topics(scene: Scene, version: int, m: Any) -> Message:
    topic = m.CreatableTopic(
        name=scene.fresh, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    message: Message = m.CreateTopicsRequest(topics=(topic,), timeout_ms=1000)
    return message


@_request(ApiKey.DELETE_TOPICS)
def _delete_topics(scene: Scene, version: int, m: Any) -> Message:
    if version < 6:
        message: Message = m.DeleteTopicsRequest(topic_names=(scene.doomed,), timeout_ms=1000)
    else:
        topics = (m.DeleteTopicState(name=scene.doomed),)
        message = m.DeleteTopicsRequest(topics=topics, timeout_ms=1000)
    return message


@_request(ApiKey.DELETE_RECORDS)
def _delete_records(scene: Scene, version: int, m: Any) -> Message:
    partition = m.DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = m.DeleteRecordsTopic(name=TOPIC, partitions=(partition,))
    message: Message = m.DeleteRecordsRequest(topics=(topic,), timeout_ms=1000)
    return message


@_request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def _offset_for_leader_epoch(scene: Scene, version: int, m: Any) -> Message:
    partition = m.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = m.OffsetForLeaderTopic(topic=TOPIC, partitions=(partition,))
    message: Message = m.OffsetForLeaderEpochRequest(topics=(topic,))
    return message


@_request(ApiKey.ADD_PARTITIONS_TO_TXN)
def _add_partitions_to_txn(scene: Scene, version: int, m: Any) -> Message:
    topics = (m.AddPartitionsToTxnTopic(name=TOPIC, partitions=(0,)),)
    if version < 4:
        message: Message = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=scene.transactional_id,
            v3_and_below_producer_id=scene.producer_id,
            v3_and_below_producer_epoch=scene.producer_epoch,
            v3_and_below_topics=topics,
        )
        return message
    asked = m.AddPartitionsToTxnTransaction(
        transactional_id=scene.transactional_id,
        producer_id=scene.producer_id,
        producer_epoch=scene.producer_epoch,
        topics=topics,
    )
    return cast("Message", m.AddPartitionsToTxnRequest(transactions=(asked,)))


def _of_producer(scene: Scene) -> Mapping[str, Any]:
    return {
        "transactional_id": scene.transactional_id,
        "producer_id": scene.producer_id,
        "producer_epoch": scene.producer_epoch,
    }


@_request(ApiKey.ADD_OFFSETS_TO_TXN)
def _add_offsets_to_txn(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.AddOffsetsToTxnRequest(**_of_producer(scene), group_id=GROUP)
    return message


@_request(ApiKey.END_TXN)
def _end_txn(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.EndTxnRequest(**_of_producer(scene), committed=True)
    return message


@_request(ApiKey.WRITE_TXN_MARKERS)
def _write_txn_markers(scene: Scene, version: int, m: Any) -> Message:
    topic = m.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(0,))
    marker = m.WritableTxnMarker(
        producer_id=scene.producer_id,
        producer_epoch=scene.producer_epoch,
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=0,
    )
    message: Message = m.WriteTxnMarkersRequest(markers=(marker,))
    return message


@_request(ApiKey.TXN_OFFSET_COMMIT)
def _txn_offset_commit(scene: Scene, version: int, m: Any) -> Message:
    partition = m.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = m.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(partition,))
    message: Message = m.TxnOffsetCommitRequest(
        **_of_producer(scene), group_id=GROUP, topics=(topic,)
    )
    return message


def _acl_filter(m: Any, name: str, principal: str | None) -> Any:
    return getattr(m, name)(
        resource_type_filter=2,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=principal,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


@_request(ApiKey.DESCRIBE_ACLS)
def _describe_acls(scene: Scene, version: int, m: Any) -> Message:
    message: Message = _acl_filter(m, "DescribeAclsRequest", None)
    return message


@_request(ApiKey.CREATE_ACLS)
def _create_acls(scene: Scene, version: int, m: Any) -> Message:
    creation = m.AclCreation(
        resource_type=2,
        resource_name=scene.fresh,
        principal="User:somebody",
        host="*",
        operation=3,
        permission_type=3,
    )
    message: Message = m.CreateAclsRequest(creations=(creation,))
    return message


@_request(ApiKey.ALTER_CLIENT_QUOTAS)
def _alter_client_quotas(scene: Scene, version: int, m: Any) -> Message:
    entry = m.EntryData(
        entity=(m.EntityData(entity_type="user", entity_name=scene.fresh),),
        ops=(m.OpData(key="producer_byte_rate", value=1000.0, remove=False),),
    )
    message: Message = m.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    return message


@_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def _alter_user_scram_credentials(scene: Scene, version: int, m: Any) -> Message:
    credential = m.ScramCredentialUpsertion(
        name=scene.fresh, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"password"
    )
    message: Message = m.AlterUserScramCredentialsRequest(deletions=(), upsertions=(credential,))
    return message


@_request(ApiKey.DELETE_ACLS)
def _delete_acls(scene: Scene, version: int, m: Any) -> Message:
    wanted = _acl_filter(m, "DeleteAclsFilter", scene.doomed_acl)
    message: Message = m.DeleteAclsRequest(filters=(wanted,))
    return message


CONFIG_RESOURCES = ((2, TOPIC), (4, "1"), (8, "1"), (32, GROUP))
"""A topic, the broker, its loggers and a group, as requests about configurations name them."""


@_request(ApiKey.DESCRIBE_CONFIGS)
def _describe_configs(scene: Scene, version: int, m: Any) -> Message:
    resources = tuple(
        m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in CONFIG_RESOURCES
    )
    message: Message = m.DescribeConfigsRequest(resources=resources)
    return message


CHANGES = {
    2: ("retention.ms", "{}000"),
    4: ("log.cleaner.backoff.ms", "{}000"),
    8: ("server.handlers", "INFO"),
    32: ("consumer.session.timeout.ms", "5{}000"),
}


def _changes(scene: Scene, m: Any, **more: Any) -> tuple[Any, ...]:
    number = scene.fresh.removeprefix("fresh-").zfill(4)[-1]
    return tuple(
        m.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=(
                m.AlterableConfig(
                    name=CHANGES[kind][0], value=CHANGES[kind][1].format(number), **more
                ),
            ),
        )
        for kind, name in CONFIG_RESOURCES
    )


@_request(ApiKey.ALTER_CONFIGS)
def _alter_configs(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.AlterConfigsRequest(resources=_changes(scene, m), validate_only=False)
    return message


@_request(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def _incremental_alter_configs(scene: Scene, version: int, m: Any) -> Message:
    resources = _changes(scene, m, config_operation=0)
    message: Message = m.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    return message


@_request(ApiKey.ALTER_REPLICA_LOG_DIRS)
def _alter_replica_log_dirs(scene: Scene, version: int, m: Any) -> Message:
    topic = m.AlterReplicaLogDirTopic(name=TOPIC, partitions=(0,))
    message: Message = m.AlterReplicaLogDirsRequest(
        dirs=(m.AlterReplicaLogDir(path="/nowhere", topics=(topic,)),)
    )
    return message


@_request(ApiKey.CREATE_PARTITIONS)
def _create_partitions(scene: Scene, version: int, m: Any) -> Message:
    topic = m.CreatePartitionsTopic(name=scene.doomed, count=2, assignments=None)
    message: Message = m.CreatePartitionsRequest(
        topics=(topic,), timeout_ms=1000, validate_only=False
    )
    return message


@_request(ApiKey.OFFSET_DELETE)
def _offset_delete(scene: Scene, version: int, m: Any) -> Message:
    partition = m.OffsetDeleteRequestPartition(partition_index=0)
    topic = m.OffsetDeleteRequestTopic(name=TOPIC, partitions=(partition,))
    message: Message = m.OffsetDeleteRequest(group_id=scene.doomed_group, topics=(topic,))
    return message


@_request(ApiKey.ELECT_LEADERS)
def _elect_leaders(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.ElectLeadersRequest(
        topic_partitions=(m.TopicPartitions(topic=TOPIC, partitions=(0,)),)
    )
    return message


@_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def _alter_partition_reassignments(scene: Scene, version: int, m: Any) -> Message:
    partition = m.ReassignablePartition(partition_index=0, replicas=(1,))
    message: Message = m.AlterPartitionReassignmentsRequest(
        topics=(m.ReassignableTopic(name=TOPIC, partitions=(partition,)),)
    )
    return message


@_request(ApiKey.DESCRIBE_QUORUM)
def _describe_quorum(scene: Scene, version: int, m: Any) -> Message:
    partition = m.AskedPartition(partition_index=0)
    message: Message = m.DescribeQuorumRequest(
        topics=(m.AskedTopic(topic_name="__cluster_metadata", partitions=(partition,)),)
    )
    return message


@_request(ApiKey.FETCH_SNAPSHOT)
def _fetch_snapshot(scene: Scene, version: int, m: Any) -> Message:
    partition = m.PartitionSnapshot(
        partition=0,
        current_leader_epoch=-1,
        snapshot_id=m.SnapshotId(end_offset=2, epoch=1),
        position=0,
    )
    message: Message = m.FetchSnapshotRequest(
        topics=(m.TopicSnapshot(name="__cluster_metadata", partitions=(partition,)),)
    )
    return message


@_request(ApiKey.UPDATE_FEATURES)
def _update_features(scene: Scene, version: int, m: Any) -> Message:
    update = m.FeatureUpdateKey(feature="group.version", max_version_level=1)
    message: Message = m.UpdateFeaturesRequest(feature_updates=(update,))
    return message


@_request(ApiKey.DESCRIBE_PRODUCERS)
def _describe_producers(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.DescribeProducersRequest(
        topics=(m.TopicRequest(name=TOPIC, partition_indexes=(0,)),)
    )
    return message


@_request(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def _consumer_group_heartbeat(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=scene.fresh,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=(TOPIC,),
        topic_partitions=(),
    )
    return message


@_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def _describe_topic_partitions(scene: Scene, version: int, m: Any) -> Message:
    message: Message = m.DescribeTopicPartitionsRequest(topics=(m.TopicRequest(name=TOPIC),))
    return message


def _plain(name: str, **fields: Any) -> Make:
    def make(scene: Scene, version: int, m: Any) -> Message:
        message: Message = getattr(m, name)(
            **{key: value(scene) if callable(value) else value for key, value in fields.items()}
        )
        return message

    return make


def _find(key: str, key_type: int) -> Make:
    def make(scene: Scene, version: int, m: Any) -> Message:
        names: dict[str, Any] = {"key": key} if version < 4 else {"coordinator_keys": (key,)}
        kind = {"key_type": key_type} if version else {}
        message: Message = m.FindCoordinatorRequest(**names, **kind)
        return message

    return make


for _key, _make in {
    ApiKey.FIND_COORDINATOR: _find(GROUP, 0),
    ApiKey.DESCRIBE_GROUPS: _plain("DescribeGroupsRequest", groups=(GROUP,)),
    ApiKey.LIST_GROUPS: _plain("ListGroupsRequest"),
    ApiKey.INIT_PRODUCER_ID: _plain(
        "InitProducerIdRequest", transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000
    ),
    ApiKey.DESCRIBE_LOG_DIRS: _plain("DescribeLogDirsRequest", topics=None),
    ApiKey.DELETE_GROUPS: _plain(
        "DeleteGroupsRequest", groups_names=lambda scene: (scene.doomed_group,)
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _plain("ListPartitionReassignmentsRequest", topics=None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _plain(
        "DescribeClientQuotasRequest", components=(), strict=False
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _plain(
        "DescribeUserScramCredentialsRequest", users=None
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _plain(
        "DescribeTransactionsRequest", transactional_ids=(TRANSACTIONAL_ID,)
    ),
    ApiKey.LIST_TRANSACTIONS: _plain(
        "ListTransactionsRequest", state_filters=(), producer_id_filters=()
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _plain(
        "ConsumerGroupDescribeRequest",
        group_ids=(CONSUMER_GROUP,),
        include_authorized_operations=False,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _plain("ListConfigResourcesRequest"),
}.items():
    _request(_key)(_make)

OTHER_REQUESTS: Mapping[tuple[ApiKey, str], Callable[[Scene, int], Message]] = {
    (ApiKey.FIND_COORDINATOR, "TRANSACTIONAL_ID"): lambda scene, version: _find(
        TRANSACTIONAL_ID, 1
    )(scene, max(version, 1), _Messages(ApiKey.FIND_COORDINATOR)),
    (ApiKey.INIT_PRODUCER_ID, "CLUSTER"): lambda scene, version: _plain(
        "InitProducerIdRequest", transactional_id=None, transaction_timeout_ms=60_000
    )(scene, version, _Messages(ApiKey.INIT_PRODUCER_ID)),
}
"""The requests of APIs that need other permissions for other requests, by the resource's type."""


@functools.cache
def request_for(key: ApiKey, kind: str) -> Callable[[Scene, int], Message]:
    """Returns the request of an API whose rule for a type of resource is looked at."""
    return OTHER_REQUESTS.get((key, kind)) or REQUESTS[key]
