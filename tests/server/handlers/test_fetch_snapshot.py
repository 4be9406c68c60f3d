"""Followers read the metadata's log and its snapshots: on the internal listener, with ClusterAction."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotId,
    SnapshotPart,
    TopicSnapshot,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from replog.batches import decode_batches
from replog.checkpoints import verify_bytes
from replog.entry import Kind
from server.metadata.machine import decode_command
from server.metadata.store import METADATA_TOPIC, METADATA_TOPIC_ID
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker, serving_broker

INTERNAL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
SNAPSHOTS_OFTEN = INTERNAL | {"replog_snapshot_u": "1000", "replog_catchup_entries": "0"}
FOLLOWER = uuid.UUID(int=7)
REPLICAS = ",".join(f"{each}:1" for each in range(400))


@asynccontextmanager
async def leading(
    path: Path, listener: str = "INTERNAL", **properties: str
) -> AsyncIterator[tuple[ServedBroker, RawClient]]:
    async with serving_broker(path, **(properties or INTERNAL)) as served:
        yield served, await served.connect(listener)


def fetch(
    offset: int, term: int, *, leader_epoch: int = -1, wait_ms: int = 0, cluster: str | None = None
) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=term,
        partition_max_bytes=1 << 20,
        replica_directory_id=FOLLOWER,
    )
    topic = FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return FetchRequest(
        cluster_id=cluster, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=(topic,)
    )


async def fetched(client: RawClient, request: FetchRequest, version: int = 17) -> PartitionData:
    response = await client.call(request, version, FetchResponse)
    assert response.error_code == ErrorCode.NONE
    ((data,),) = (topic.partitions for topic in response.responses)
    return data


def piece(
    end: int,
    term: int,
    position: int,
    *,
    leader_epoch: int = -1,
    max_bytes: int = 1 << 20,
    follower: uuid.UUID = FOLLOWER,
    topic: str = METADATA_TOPIC,
    partition: int = 0,
    cluster: str | None = None,
) -> FetchSnapshotRequest:
    asked = PartitionSnapshot(
        partition=partition,
        current_leader_epoch=leader_epoch,
        snapshot_id=SnapshotId(end_offset=end, epoch=term),
        position=position,
        replica_directory_id=follower,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster,
        max_bytes=max_bytes,
        topics=(TopicSnapshot(name=topic, partitions=(asked,)),),
    )


async def part_of(client: RawClient, request: FetchSnapshotRequest) -> SnapshotPart:
    response = await client.call(request, 1, FetchSnapshotResponse)
    assert response.error_code == ErrorCode.NONE
    ((part,),) = (topic.partitions for topic in response.topics)
    return part


async def test_a_follower_gets_the_entries_of_the_log_with_their_terms(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        await served.create("orders", 3)
        data = await fetched(client, fetch(1, 0))
        frames = decode_batches(copied(data.records or b""))
        entries = [entry for frame in frames for entry in frame.entries()]
        assert [entry.index for entry in entries] == list(range(1, data.high_watermark))
        commands = [decode_command(each.payload) for each in entries if each.kind is Kind.COMMAND]
        keys = [operation[1] for command in commands for operation in command]
        assert "/topics/orders" in keys
        assert not [key for key in keys if key.startswith(("/placed/", "/unsettled/"))]
        assert data.current_leader.leader_epoch == served.broker.metadata_log.term


@pytest.mark.parametrize("version", [12, 13, 17])
async def test_each_version_that_names_the_last_term_can_follow(
    tmp_path: Path, version: int
) -> None:
    async with leading(tmp_path) as (served, client):
        await served.create("orders")
        data = await fetched(client, fetch(1, 0), version)
        assert decode_batches(copied(data.records or b""))


async def test_on_another_listener_the_log_does_not_exist(tmp_path: Path) -> None:
    async with leading(tmp_path, "PLAINTEXT") as (_, client):
        data = await fetched(client, fetch(1, 0), 12)
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        data = await fetched(client, fetch(1, 0))
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        part = await part_of(client, piece(2, 1, 0))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fetch_at_the_end_waits_for_the_next_entry(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        await served.create("orders")
        await served.broker.topics._settling.finish()
        data = await fetched(client, fetch(1, 0))
        last = decode_batches(copied(data.records or b""))[-1]
        waiting = asyncio.create_task(fetched(client, fetch(last.end, last.term, wait_ms=60_000)))
        await served.create("users")
        found = decode_batches(copied((await waiting).records or b""))
        assert found[0].index == last.end


async def test_a_log_that_differs_gets_the_place_where_it_diverges(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        await served.create("orders")
        data = await fetched(client, fetch(1000, 1))
        assert not data.records
        assert data.diverging_epoch.end_offset == data.high_watermark


async def test_a_follower_of_another_cluster_or_a_later_term_is_refused(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        response = await client.call(fetch(1, 0, cluster="another"), 17, FetchResponse)
        assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        answer = await client.call(piece(2, 1, 0, cluster="another"), 1, FetchSnapshotResponse)
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        term = served.broker.metadata_log.term
        for epoch, code in (
            (term + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (term - 1, ErrorCode.FENCED_LEADER_EPOCH),
        ):
            data = await fetched(client, fetch(1, 0, leader_epoch=epoch))
            assert data.error_code == code
            part = await part_of(client, piece(2, 1, 0, leader_epoch=epoch))
            assert part.error_code == code
            assert part.current_leader.leader_epoch == term


async def test_a_follower_that_is_left_behind_gets_a_snapshot_piece_by_piece(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path, **SNAPSHOTS_OFTEN) as (served, client):
        # Larger than the smallest piece.
        for number in range(60):
            await served.create(
                f"topic-{number}", **{"leader.replication.throttled.replicas": REPLICAS}
            )
        await served.broker.topics._settling.finish()
        offered = (await fetched(client, fetch(1, 0))).snapshot_id
        assert offered.end_offset > 1
        data, size, pieces = b"", 1, 0
        while len(data) < size:
            part = await part_of(
                client, piece(offered.end_offset, offered.epoch, len(data), max_bytes=1)
            )
            assert part.error_code == ErrorCode.NONE
            data, size, pieces = data + copied(part.unaligned_records or b""), part.size, pieces + 1
        assert pieces > 1
        checkpoint = verify_bytes(memoryview(data), "received")
        assert checkpoint.snapshot.end == offered.end_offset
        (follower,) = served.broker.followers.all()
        assert follower.installs == 1
        part = await part_of(client, piece(offered.end_offset, offered.epoch, size))
        assert part.error_code == ErrorCode.POSITION_OUT_OF_RANGE
        part = await part_of(client, piece(offered.end_offset, offered.epoch, -1))
        assert part.error_code == ErrorCode.POSITION_OUT_OF_RANGE


@pytest.mark.parametrize(("end", "term"), [(999, 1), (1, 0), (-1, -1)])
async def test_a_snapshot_that_is_not_there_is_not_found(
    tmp_path: Path, end: int, term: int
) -> None:
    async with leading(tmp_path) as (_, client):
        part = await part_of(client, piece(end, term, 0))
        assert part.error_code == ErrorCode.SNAPSHOT_NOT_FOUND


@pytest.mark.parametrize(("topic", "partition"), [("orders", 0), (METADATA_TOPIC, 1)])
async def test_only_the_metadata_has_snapshots(tmp_path: Path, topic: str, partition: int) -> None:
    async with leading(tmp_path) as (served, client):
        await served.create("orders")
        part = await part_of(client, piece(2, 1, 0, topic=topic, partition=partition))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_too_many_downloads_are_sent_away_for_a_while(tmp_path: Path) -> None:
    settings = SNAPSHOTS_OFTEN | {"replog_follower_snapshots_max": "1"}
    async with leading(tmp_path, **settings) as (served, client):
        for number in range(8):
            await served.create(f"topic-{number}")
        served.broker.followers.admit("another", served.broker.metadata_log._log.replica.snapshot)
        offered = (await fetched(client, fetch(1, 0))).snapshot_id
        request = piece(offered.end_offset, offered.epoch, 0)
        response = await client.call(request, 1, FetchSnapshotResponse)
        ((part,),) = (topic.partitions for topic in response.topics)
        assert part.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert response.throttle_time_ms > 0
