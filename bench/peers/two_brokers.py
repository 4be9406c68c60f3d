"""What a second process could add: requests spread over two brokers, beside one broker with all of them.

The brokers share nothing but the machine and the client process, so a broker of two processes could at
most do the same (docs/design/processes.md).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.base.closed_loop import closed_loops
from bench.base.figure import Figure, interleaved
from bench.base.messages import frame_of
from bench.base.processes import broker_command, free_port, running
from bench.base.raw_protocol import produce_request
from bench.clients.throughput import topic_on
from bench.peers import group_heartbeats, metadata, offset_commit
from bench.peers.comparison import Peer
from bench.peers.loading import wait_until_served
from bench.peers.produce import BATCH_16, ONE_RECORD, Load, wait_until_accepted
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

CONNECTIONS = 16
MEMBERS = 1_000
REQUESTS = 20_000

Frames = Callable[[Peer], AbstractContextManager[list[bytes]]]
"""Prepares a broker; the frames are one for each connection, as if all were to this broker."""


def two_broker_figures(pairs: int) -> list[Figure]:
    """Measure the requests of several kinds."""
    sixteen = f"{CONNECTIONS} connections"
    kinds: list[tuple[str, Frames, str]] = [
        (f"produce, one record, {sixteen}, acks=1", partial(_produces, ONE_RECORD, 1), ""),
        (f"produce, one record, {sixteen}, acks=all", partial(_produces, ONE_RECORD, -1), ""),
        (
            f"produce, 16 KiB, {sixteen} x 16 partitions, acks=1",
            partial(_produces, BATCH_16, 1),
            "",
        ),
        (f"metadata, one topic, {sixteen}", _metadata, ""),
        (
            f"offset commit, one partition, {sixteen}, not synced",
            _commits,
            "flush.on.acks.all=false",
        ),
        (f"heartbeats, one group of {MEMBERS} members a broker", _heartbeats, ""),
    ]
    return [
        interleaved(
            name,
            "requests/s",
            partial(_rate, 2, frames, setting),
            partial(_rate, 1, frames, setting),
            limit_is="one broker, the same number of connections",
            pairs=pairs,
        )
        for name, frames, setting in kinds
    ]


def _rate(brokers: int, frames: Frames, setting: str) -> float:
    """Returns the requests that so many brokers answer in a second, each with its share of them."""
    with ExitStack() as stack:
        peers = [stack.enter_context(_broker(setting)) for _ in range(brokers)]
        prepared = [(peer.port, stack.enter_context(frames(peer))) for peer in peers]
        requests = [
            (port, frame)
            for number, (port, each) in enumerate(prepared)
            for frame in each[number::brokers]
        ]
        with closed_loops(requests) as answered:
            answered(REQUESTS // 2)
            return answered(REQUESTS)


@contextmanager
def _broker(setting: str) -> Iterator[Peer]:
    settings = ["log.cleaner.enable=false", *([setting] if setting else [])]
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        command = broker_command(port, Path(directory) / "data", *settings)
        with running(command, port) as pid:
            yield Peer(port, pid)


@contextmanager
def _produces(load: Load, acks: int, peer: Peer) -> Iterator[list[bytes]]:
    partitions = 1 if load is ONE_RECORD else CONNECTIONS
    with topic_on(peer.port, "delete", partitions) as topic:
        frames = [
            produce_request(topic, number % partitions, load.batch, acks=acks)
            for number in range(CONNECTIONS)
        ]
        wait_until_accepted(peer, frames)
        yield frames


@contextmanager
def _metadata(peer: Peer) -> Iterator[list[bytes]]:
    with topic_on(peer.port, "delete") as topic:
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        yield _served(peer, [frame_of(request, metadata.VERSION)] * CONNECTIONS, metadata.error_in)


@contextmanager
def _commits(peer: Peer) -> Iterator[list[bytes]]:
    with topic_on(peer.port, "delete") as topic:
        groups = [f"{topic}-{number}" for number in range(CONNECTIONS)]
        offset_commit.create_offsets_topic(peer, groups[0])
        frames = [offset_commit.commit_request(group, topic) for group in groups]
        yield _served(peer, frames, offset_commit.error_in)


@contextmanager
def _heartbeats(peer: Peer) -> Iterator[list[bytes]]:
    yield group_heartbeats.stable_group(peer, "heartbeats", MEMBERS)


def _served(
    peer: Peer, frames: Sequence[bytes], error_in: Callable[[memoryview], int]
) -> list[bytes]:
    wait_until_served(peer, frames, error_in)
    return [*frames]
