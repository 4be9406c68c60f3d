"""Opens the HTTP endpoint over a broker; imported when it is needed, for what it imports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metrics.collector import BrokerCollector, BrokerFacts, PartitionFacts, Scraper
from metrics.http_endpoint import HttpEndpoint
from server.listener import ListenError
from server.release import release

if TYPE_CHECKING:
    from server.broker import Broker
    from storage.log import PartitionLog


async def open_http(broker: Broker) -> tuple[HttpEndpoint, int]:
    """The endpoint, listening, and its port.

    Raises:
        ListenError: the address is in use or not ours.
    """
    address = broker.config.resolved_http_listener()
    assert address is not None
    collector = BrokerCollector(
        broker.probe,
        broker.cleaner_counts,
        broker=lambda: broker_facts(broker),
        partitions=lambda: partition_facts(broker),
    )
    endpoint = HttpEndpoint(Scraper(collector), not_ready=lambda: broker.not_ready)
    try:
        return endpoint, await endpoint.open(address.host, address.port)
    except OSError as error:
        await endpoint.close()
        raise ListenError(
            f"cannot listen on http://{address.host}:{address.port}: {error.strerror or error}"
        ) from error


def broker_facts(broker: Broker) -> BrokerFacts:
    """The broker as a scrape shows it. Any thread."""
    if not broker.has_storage:
        return BrokerFacts(
            version=release(),
            is_ready=False,
            partitions_by_topic={},
            partitions_offline=0,
            directories_offline=0,
            recovery=broker.recovery,
        )
    topics = broker.topics.all()
    return BrokerFacts(
        version=release(),
        is_ready=broker.not_ready is None,
        partitions_by_topic={topic.name: len(topic.partitions) for topic in topics},
        partitions_offline=sum(
            log.offline_reason is not None for topic in topics for log in topic.partitions
        ),
        directories_offline=len(broker.directories_left_out)
        + sum(each.offline_reason is not None for each in broker.directories),
        recovery=broker.recovery,
    )


def partition_facts(broker: Broker) -> Iterator[PartitionFacts]:
    """The partitions as a scrape shows them, in the order of their names. Any thread."""
    for topic in broker.topics.all() if broker.has_storage else ():
        for log in topic.logs():
            if log.offline_reason is None:
                yield _facts_of(log)


def _facts_of(log: PartitionLog) -> PartitionFacts:
    segments = log.segments
    is_compacted = log.config.is_compacted
    return PartitionFacts(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        size_bytes=sum(segment.size for segment in segments),
        segments_count=len(segments),
        clean_offset=log.clean_offset if is_compacted else None,
        dirty_ratio=_dirty_ratio(log) if is_compacted else None,
    )


def _dirty_ratio(log: PartitionLog) -> float:
    """Dirty bytes over all bytes of the sealed segments; 0 where there are none."""
    sealed = log.segments[:-1]
    total = sum(segment.size for segment in sealed)
    clean_offset = log.clean_offset
    dirty = sum(segment.size for segment in sealed if segment.end_offset > clean_offset)
    return dirty / total if total else 0.0
