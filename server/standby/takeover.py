"""What a standby asks its source before it takes over: to refuse writes, and where its logs end then.

The source becomes fenced by one of its own properties, which it writes durably before it answers. It
then starts again within its process, as a broker that only answers what reads, so its ends are final.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cleaner.rules.text import count_text
from protocol.messages.fetch import FetchResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.client.broker_client import BrokerClient
from server.client.errors import ClientFailed
from server.config.standby_config import FENCED_BY
from server.replication.requests import LATEST, offsets_answer, offsets_request
from server.standby.peer_answers import PeerLost
from server.standby.peers import peer_of, term_request
from storage.formats.topic_partition import TopicPartition

BROKER = 4
"""The resource type of a broker."""
SET = 0
PARTITIONS_AT_ONCE = 1_000


class SourceLog(NamedTuple):
    """A log of the source. A topic that was deleted and created again has other logs than before."""

    topic_id: uuid.UUID
    partition: TopicPartition


async def fence(client: BrokerClient, standby: str) -> None:
    """Let the source refuse writes from now on, also after its next start.

    Args:
        standby: the name of who takes over.

    Raises:
        ClientFailed: it cannot be reached, or refuses.
    """
    metadata = await _metadata(client, topics=())
    if len(metadata.brokers) != 1:
        count = count_text(len(metadata.brokers), "broker")
        raise ClientFailed(f"the source has {count}: a standby is of one")
    resource = AlterConfigsResource(
        resource_type=BROKER,
        resource_name=str(metadata.brokers[0].node_id),
        configs=(AlterableConfig(name=FENCED_BY, config_operation=SET, value=standby),),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (answer,) = (await client.call(request, IncrementalAlterConfigsResponse)).responses
    if answer.error_code:
        reason = answer.error_message or ErrorCode.from_wire(answer.error_code).message
        raise ClientFailed(f"the source does not let itself be fenced: {reason}")


async def final_ends(
    client: BrokerClient, address: str, cluster_id: str
) -> Mapping[SourceLog, Offset]:
    """Returns where each log of a fenced source ends.

    Args:
        address: where the client is connected.

    Raises:
        ClientFailed: it cannot be reached, is not fenced yet, or does not say so for some partition.
    """
    found = peer_of(address, await client.call(term_request(cluster_id), FetchResponse))
    if isinstance(found, PeerLost) or found.leads:
        # Until it has started fenced, it acknowledges what it was sent before: its ends may move.
        raise ClientFailed(f"the source is not fenced yet: {found}")
    metadata = await _metadata(client, topics=None)
    ids = {topic.name: topic.topic_id for topic in metadata.topics if topic.name}
    partitions = [
        TopicPartition(topic.name, each.partition_index)
        for topic in metadata.topics
        if topic.name
        for each in topic.partitions
    ]
    ends: dict[TopicPartition, Offset] = {}
    for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
        asked = partitions[start : start + PARTITIONS_AT_ONCE]
        ends |= offsets_answer(
            await client.call(offsets_request(asked, LATEST), ListOffsetsResponse)
        )
    if untold := [each for each in partitions if each not in ends]:
        raise ClientFailed(f"the source does not say where {untold[0]} ends")
    return {SourceLog(ids[each.topic], each): end for each, end in ends.items()}


async def _metadata(client: BrokerClient, *, topics: Sequence[str] | None) -> MetadataResponse:
    assert not topics, "all or none"
    request = MetadataRequest(
        topics=None if topics is None else (), allow_auto_topic_creation=False
    )
    return await client.call(request, MetadataResponse)


def behind(ends: Mapping[SourceLog, Offset], own: Mapping[SourceLog, Offset]) -> list[str]:
    """Returns a sentence for each partition that lacks records of the source: pure.

    Args:
        ends: where the source's logs end, for ever.
        own: where the standby's end.
    """
    sentences = []
    for log in sorted(ends, key=_in_order):
        end, have = ends[log], own.get(log)
        if have is None:
            sentences.append(f"{log.partition}: nothing is copied, the source's log ends at {end}")
        elif have < end:
            sentences.append(f"{log.partition}: this log ends at {have}, the source's at {end}")
    return sentences


def _in_order(log: SourceLog) -> tuple[str, int]:
    return log.partition.topic, log.partition.partition
