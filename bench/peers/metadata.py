"""Metadata: clients ask for one topic, as they do when they start and every few minutes."""

from __future__ import annotations

from bench.base.figure import Figure
from bench.base.messages import answer_in, frame_of
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import loaded_rate, wait_until_served
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

VERSION = MetadataRequest.versions[1]


def metadata_figure(servers: Comparison, *, connections: int) -> Figure:
    """Measure requests for one topic with one partition."""

    def rate(peer: Peer) -> float:
        with topic_on(peer.port, "delete", tls=peer.tls) as topic:
            asked = (MetadataRequestTopic(name=topic),)
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
            frame = frame_of(request, VERSION)
            wait_until_served(peer, [frame], error_in)
            return loaded_rate(peer, [frame] * connections, servers.effort.seconds)

    return servers.figure(f"metadata, one topic, {connections} connections", "requests/s", rate)


def error_in(answer: memoryview) -> int:
    """Returns the error code of the answer's topic or of its partition."""
    (topic,) = answer_in(answer, MetadataResponse, VERSION).topics
    return topic.error_code or max(each.error_code for each in topic.partitions)
