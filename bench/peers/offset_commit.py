"""OffsetCommit: consumers that are no members commit one partition, each for a group of its own.

Kompakt syncs these commits like other records with acks=all, unless the figure says otherwise.
"""

from __future__ import annotations

from bench.base.connection import connected
from bench.base.figure import Figure
from bench.base.messages import answer_in, frame_of
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import loaded_rate, wait_until_served
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

VERSION = 9
"""The newest one that names the topic."""
COORDINATOR_VERSION = 4
OFFSET = 1
"""Committed again and again; each commit is a record all the same."""


def committed_figure(servers: Comparison, *, connections: int) -> Figure:
    """Measure commits of one partition, one at a time on each connection."""

    def rate(peer: Peer) -> float:
        with topic_on(peer.port, "delete", tls=peer.tls) as topic:
            groups = [f"{topic}-{number}" for number in range(connections)]
            frames = [commit_request(group, topic) for group in groups]
            create_offsets_topic(peer, groups[0])
            wait_until_served(peer, frames, error_in)
            return loaded_rate(peer, frames, servers.effort.seconds)

    name = f"offset commit, one partition, {connections} connections"
    return servers.figure(name, "requests/s", rate)


def commit_request(group: str, topic: str) -> bytes:
    """Returns the commit of a consumer that is no member: without a generation and a member id."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=OFFSET, committed_metadata=""
    )
    asked = OffsetCommitRequestTopic(name=topic, partitions=(partition,))
    return frame_of(OffsetCommitRequest(group_id=group, topics=(asked,)), VERSION)


def create_offsets_topic(peer: Peer, group: str) -> None:
    """Ask for a coordinator: Apache Kafka creates the topic of offsets for the first such request."""
    with connected(peer.port, peer.tls) as connection:
        asked = FindCoordinatorRequest(coordinator_keys=(group,))
        connection.ask(frame_of(asked, COORDINATOR_VERSION))


def error_in(answer: memoryview) -> int:
    """Returns the error code of the committed partition."""
    (topic,) = answer_in(answer, OffsetCommitResponse, VERSION).topics
    return topic.partitions[0].error_code
