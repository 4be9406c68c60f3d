"""What a comparison reads from its source: the size of the logs there, as DescribeLogDirs says it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from server.client.broker_client import connected
from server.client.errors import ClientFailed
from server.replication.source_topics import SourcePartition
from storage.formats.topic_partition import TopicPartition

ASK_SECONDS_MAX = 10.0


async def sizes_of(partitions: Iterable[SourcePartition]) -> dict[TopicPartition, int]:
    """Returns the bytes of the logs at the source, without those that it does not tell.

    A source may refuse: DescribeLogDirs needs Describe on its cluster.
    """
    led: dict[str, list[SourcePartition]] = {}
    for each in partitions:
        led.setdefault(each.address, []).append(each)
    found: dict[TopicPartition, int] = {}
    for address, theirs in led.items():
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                found |= await _sizes_at(address, theirs)
        except (ClientFailed, TimeoutError):
            continue
    return found


async def _sizes_at(address: str, asked: list[SourcePartition]) -> dict[TopicPartition, int]:
    by_topic: dict[str, list[int]] = {}
    for each in asked:
        by_topic.setdefault(each.partition.topic, []).append(each.partition.partition)
    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(topic=name, partitions=tuple(numbers))
            for name, numbers in by_topic.items()
        )
    )
    async with connected(address, asked[0].access) as client:
        answer = await client.call(request, DescribeLogDirsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_size
        for directory in answer.results
        for topic in directory.topics
        for each in topic.partitions
        if not each.is_future_key and not directory.error_code
    }
