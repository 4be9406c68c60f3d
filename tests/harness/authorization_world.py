"""A broker with a topic, groups and transactions, for one request of every API."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.produce import ProduceResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from server.security.acls import Acl, Operation, ResourceType
from storage.log.log import PartitionLog
from tests.harness.authorization_requests import (
    CONSUMER_GROUP,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Scene,
    request_for,
)
from tests.harness.authorized_broker import allow, set_acls
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker, batch_of, produce_request


def values_in(message: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yields every value of a message with the names of the fields that lead to it."""
    if dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            where = f"{path}.{field.name}" if path else field.name
            yield from values_in(getattr(message, field.name), where)
    elif isinstance(message, tuple):
        for each in message:
            yield from values_in(each, path)
    else:
        yield path, message


def state_of(served: ServedBroker) -> object:
    """Returns what a request could change: metadata, topics, and the ends of all logs."""
    broker = served.broker
    logs = {
        str(log.topic_partition): (log.log_start_offset, log.log_end_offset)
        for topic in broker.topics.all()
        for log in topic.partitions
        if isinstance(log, PartitionLog)
    }
    return broker.metadata_revision, logs


class World:
    """A broker with a scene, whose client is anonymous."""

    def __init__(self, served: ServedBroker, client: RawClient, admin: RawClient) -> None:
        self.served = served
        self.client = client
        self.admin = admin

    async def prepare(self) -> None:
        """Create what lasts."""
        await self.served.create(TOPIC)
        await self.open_transaction(TRANSACTIONAL_ID)
        await self.admin.call(produce_request(TOPIC, batch_of(1)), 9, ProduceResponse)
        await self.admin.call(
            ConsumerGroupHeartbeatRequest(
                group_id=CONSUMER_GROUP,
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=(TOPIC,),
                topic_partitions=(),
            ),
            1,
            ConsumerGroupHeartbeatResponse,
        )

    async def scene(self, key: ApiKey) -> Scene:
        """Create what one request uses up."""
        topic = self.served.broker.topics.get(TOPIC)
        assert topic is not None
        scene = Scene(topic.id, -1, -1)
        scene.transactional_id = f"{TRANSACTIONAL_ID}-{scene.fresh}"
        scene.producer_id, scene.producer_epoch = await self.open_transaction(
            scene.transactional_id
        )
        scene.doomed = f"doomed-{scene.fresh}"
        await self.served.create(scene.doomed)
        scene.doomed_group = f"group-{scene.fresh}"
        scene.doomed_acl = f"User:{scene.fresh}"
        for group in (scene.doomed_group, GROUP):
            await self.commit(group)
        if key is ApiKey.TXN_OFFSET_COMMIT:
            added = await self.admin.call(
                AddOffsetsToTxnRequest(
                    transactional_id=scene.transactional_id,
                    producer_id=scene.producer_id,
                    producer_epoch=scene.producer_epoch,
                    group_id=GROUP,
                ),
                3,
                AddOffsetsToTxnResponse,
            )
            assert added.error_code == ErrorCode.NONE
        if key is ApiKey.DELETE_RECORDS:
            # The transaction holds back the last stable offset, but not the start of the log.
            await self.admin.call(produce_request(TOPIC, batch_of(1)), 9, ProduceResponse)
        return scene

    async def open_transaction(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> tuple[int, int]:
        """Begin a transaction with the topic. Returns its producer."""
        producer = await self.admin.call(
            InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            ),
            4,
            InitProducerIdResponse,
        )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=TOPIC, partitions=(0,)),),
        )
        added = await self.admin.call(request, 3, AddPartitionsToTxnResponse)
        codes = {value for path, value in values_in(added) if path.endswith("error_code")}
        assert codes == {ErrorCode.NONE}
        return producer.producer_id, producer.producer_epoch

    async def commit(self, group: str) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )
        await self.admin.call(request, 8, OffsetCommitResponse)

    async def call(
        self, key: ApiKey, version: int, acls: list[Acl], kind: str = "", *, as_admin: bool = False
    ) -> tuple[Message, bool]:
        """Returns the answer with these ACLs in force, and whether anything has changed."""
        scene = await self.scene(key)
        spare = allow(ResourceType.TOPIC, "spare", Operation.READ, scene.doomed_acl)
        await set_acls(self.served, [*acls, spare])
        before = state_of(self.served)
        client = self.admin if as_admin else self.client
        request = request_for(key, kind)(scene, version)
        if key is ApiKey.FIND_COORDINATOR and kind == "TRANSACTIONAL_ID":
            version = max(version, 1)  # the first one with transactions
        answer: Message = await client.call(request, version, APIS[key].response_type)
        return answer, state_of(self.served) != before
