"""The metadata's log over Fetch and FetchSnapshot, on the internal listener (KIP-595, KIP-630)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
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
from replog.batches import decode_batches
from replog.checkpoints import snapshots_in, verify_bytes
from server.metadata.followers import PIN_SECONDS, Followers
from server.metadata.store import METADATA_TOPIC, METADATA_TOPIC_ID, Put
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker, serving_broker

INTERNAL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
SNAPSHOTS_OFTEN = INTERNAL | {"replog_snapshot_u": "1000", "replog_catchup_entries": "0"}


@asynccontextmanager
async def leading(
    folder: Path, properties: dict[str, str] = INTERNAL
) -> AsyncIterator[tuple[ServedBroker, RawClient]]:
    """A broker with a few changes, and a client of its internal listener."""
    async with serving_broker(folder, **properties) as served:
        for number in range(5):
            await put(served, number)
        yield served, await served.connect("INTERNAL")


async def put(served: ServedBroker, number: int, value: str = "v") -> None:
    await served.broker.metadata_log.txn((), [Put(key=f"/test/{number}", value=value)])


async def put_until(served: ServedBroker, is_so: Callable[[], Awaitable[bool]]) -> None:
    """Put values until the snapshots, which a thread makes and removes meanwhile, are as wanted."""
    for number in range(1_000):
        if await is_so():
            return
        await put(served, number % 5, "y" * 40_000)
    raise AssertionError("not after 40 MB")


def fetch(end: int, last_term: int, *, wait_ms: int = 0, **fields: object) -> FetchRequest:
    cluster_id = fields.pop("cluster_id", None)
    values = {
        "partition": 0,
        "fetch_offset": end,
        "last_fetched_epoch": last_term,
        "partition_max_bytes": 1 << 20,
    } | fields
    topic = FetchTopic(
        topic=METADATA_TOPIC,
        topic_id=METADATA_TOPIC_ID,
        partitions=(FetchPartition(**values),),  # type: ignore[arg-type]
    )
    return FetchRequest(
        cluster_id=cluster_id,  # type: ignore[arg-type]
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=(topic,),
    )


async def fetched(client: RawClient, request: FetchRequest, version: int = 18) -> PartitionData:
    response = await client.call(request, version, FetchResponse)
    assert response.error_code == 0
    ((data,),) = [topic.partitions for topic in response.responses]
    return data


def piece(
    snapshot: SnapshotId, position: int = 0, *, epoch: int = -1, follower: int = 1
) -> FetchSnapshotRequest:
    partition = PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=snapshot,
        position=position,
        replica_directory_id=uuid.UUID(int=follower),
    )
    topic = TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    # The broker sends at least 64 KiB.
    return FetchSnapshotRequest(max_bytes=1, topics=(topic,))


async def got(client: RawClient, request: FetchSnapshotRequest) -> SnapshotPart:
    response = await client.call(request, 1, FetchSnapshotResponse)
    assert response.error_code == 0
    ((part,),) = [topic.partitions for topic in response.topics]
    return part


async def offered(client: RawClient) -> SnapshotId:
    """Returns the snapshot that a new follower must take."""
    data = await fetched(client, fetch(1, 0))
    return SnapshotId(end_offset=data.snapshot_id.end_offset, epoch=data.snapshot_id.epoch)


async def begun(served: ServedBroker, client: RawClient) -> tuple[SnapshotId, SnapshotPart]:
    """Begin a download of more than one piece. Returns the snapshot and its first piece.

    Like a follower, it takes a later snapshot if that one is gone: a thread may have superseded it
    meanwhile, and on a fast disk early ones are small.
    """
    for number in range(1_000):
        snapshot = await offered(client)
        first = await got(client, piece(snapshot))
        if not first.error_code and len(data_of(first)) < first.size:
            return snapshot, first
        await put(served, number % 5, "y" * 40_000)
    raise AssertionError("not after 40 MB")


def data_of(part: SnapshotPart) -> bytes:
    return bytes(part.unaligned_records or b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [12, 13, 18])
async def test_a_follower_gets_the_frames_after_its_log(tmp_path: Path, version: int) -> None:
    async with leading(tmp_path) as (served, client):
        store = served.broker.metadata_log
        data = await fetched(client, fetch(1, 0), version)
        frames = decode_batches(bytes(data.records or b""))  # type: ignore[arg-type]
        assert [frame.index for frame in frames] == list(range(1, store.log_end))
        assert (data.high_watermark, data.log_start_offset) == (store.log_end, 1)
        assert data.current_leader.leader_epoch == store.term == frames[-1].term
        rest = await fetched(client, fetch(store.log_end, store.term), version)
        assert (rest.records, rest.error_code) == (b"", 0)


async def test_a_fetch_at_the_end_is_answered_by_the_next_change(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        store = served.broker.metadata_log
        request = fetch(store.log_end, store.term, wait_ms=60_000)
        waiting = asyncio.create_task(fetched(client, request))
        listeners = served.broker.listening._listeners
        assert listeners is not None
        connections = listeners._shared.connections
        while not any(each._parked for each in connections):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        await put(served, 99)
        frames = decode_batches(bytes((await waiting).records or b""))  # type: ignore[arg-type]
        assert len(frames) == 1


async def test_a_log_that_differs_gets_the_end_of_what_is_common(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        store = served.broker.metadata_log
        data = await fetched(client, fetch(store.log_end + 7, store.term))
        diverging = data.diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (store.term, store.log_end)
        foreign = await fetched(client, fetch(1, 3))
        assert (foreign.diverging_epoch.end_offset, foreign.snapshot_id.end_offset) == (1, -1)


@pytest.mark.parametrize("epoch", [-1, 0, 1], ids=["unknown", "ours", "newer"])
async def test_the_expected_leader_epoch_is_checked(tmp_path: Path, epoch: int) -> None:
    codes = {
        0: ErrorCode.NONE,
        1: ErrorCode.UNKNOWN_LEADER_EPOCH,
        -1: ErrorCode.FENCED_LEADER_EPOCH,
    }
    async with leading(tmp_path) as (served, client):
        expected = served.broker.metadata_log.term + epoch
        request = fetch(1, 0, current_leader_epoch=expected)
        snapshot = piece(SnapshotId(end_offset=9, epoch=1), epoch=expected)
        data, part = await fetched(client, request), await got(client, snapshot)
        assert data.error_code == codes[epoch]
        assert part.error_code == (codes[epoch] or ErrorCode.SNAPSHOT_NOT_FOUND)
        term = served.broker.metadata_log.term
        assert data.current_leader.leader_epoch == part.current_leader.leader_epoch == term


@pytest.mark.parametrize(("end", "term"), [(0, 0), (-1, 0), (1, -1)])
async def test_positions_that_no_log_has_are_invalid(tmp_path: Path, end: int, term: int) -> None:
    async with leading(tmp_path) as (_, client):
        assert (await fetched(client, fetch(end, term))).error_code == ErrorCode.INVALID_REQUEST


async def test_another_cluster_is_refused(tmp_path: Path) -> None:
    async with leading(tmp_path) as (_, client):
        entries = await client.call(fetch(1, 0, cluster_id="other"), 18, FetchResponse)
        assert entries.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        snapshot = FetchSnapshotRequest(cluster_id="other", topics=())
        answer = await client.call(snapshot, 1, FetchSnapshotResponse)
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_on_other_listeners_the_metadata_does_not_exist(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, _):
        outside = await served.connect()
        by_name = await fetched(outside, fetch(1, 0), 12)
        by_id = await fetched(outside, fetch(1, 0), 18)
        part = await got(outside, piece(SnapshotId(end_offset=2, epoch=1)))
    assert by_name.error_code == part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_follower_far_behind_downloads_the_snapshot_in_pieces(tmp_path: Path) -> None:
    async with leading(tmp_path, SNAPSHOTS_OFTEN) as (served, client):
        for number in range(40):
            await put(served, number, "x" * 20_000)
        snapshot, part = await begun(served, client)
        data = data_of(part)
        while len(data) < part.size:
            part = await got(client, piece(snapshot, len(data)))
            assert (part.error_code, part.position) == (0, len(data))
            data += data_of(part)
        assert verify_bytes(memoryview(data), "the file").snapshot.end == snapshot.end_offset
        (follower,) = served.broker.followers.as_json(1, lambda *_: 0)[:1]
        assert (follower["installs"], follower["download"]) == (1, None)


@pytest.mark.parametrize("position", [-1, 1 << 40])
async def test_a_position_outside_of_the_snapshot_is_refused(tmp_path: Path, position: int) -> None:
    async with leading(tmp_path, SNAPSHOTS_OFTEN) as (served, client):
        snapshot, _ = await begun(served, client)
        part = await got(client, piece(snapshot, position))
        assert part.error_code == ErrorCode.POSITION_OUT_OF_RANGE


@pytest.mark.parametrize("end", [1, 2, 1 << 50])
async def test_a_snapshot_that_is_not_there_is_not_found(tmp_path: Path, end: int) -> None:
    async with leading(tmp_path) as (_, client):
        part = await got(client, piece(SnapshotId(end_offset=end, epoch=int(end > 1))))
        assert part.error_code == ErrorCode.SNAPSHOT_NOT_FOUND


async def test_a_download_too_many_is_throttled_and_takes_no_place(tmp_path: Path) -> None:
    properties = SNAPSHOTS_OFTEN | {"replog_follower_snapshots_max": "1"}
    async with leading(tmp_path, properties) as (served, client):
        for number in range(40):
            await put(served, number, "x" * 40_000)
        snapshot, _ = await begun(served, client)
        second = await client.call(piece(snapshot, follower=2), 1, FetchSnapshotResponse)
        assert second.throttle_time_ms > 0
        code = second.topics[0].partitions[0].error_code
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert served.broker.followers.downloading_count == 1


async def test_a_snapshot_that_is_downloaded_stays_until_a_minute_without_a_request(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path, SNAPSHOTS_OFTEN) as (served, client):
        for number in range(40):
            await put(served, number, "x" * 40_000)
        now_s = 0.0
        followers = Followers(snapshots_max=1, bytes_per_second=1 << 40, clock=lambda: now_s)
        served.broker.followers = followers
        served.broker.metadata_log.pin_snapshots(followers.pinned)
        snapshot, first = await begun(served, client)

        async def is_superseded() -> bool:
            return await offered(client) != snapshot

        await put_until(served, is_superseded)
        position = len(data_of(first))
        assert (await got(client, piece(snapshot, position))).error_code == 0
        use = served.broker.metadata_log._log.compactor
        assert use.disk_use().total_bytes <= use.bound_bytes()
        now_s = 2 * PIN_SECONDS

        async def is_removed() -> bool:
            # Not by a request, which would begin another minute.
            kept = snapshots_in([path.name for path in (tmp_path / "metadata").iterdir()])
            return snapshot.end_offset not in [each.end for each in kept]

        await put_until(served, is_removed)
        part = await got(client, piece(snapshot, position))
        assert part.error_code == ErrorCode.SNAPSHOT_NOT_FOUND


async def test_several_partitions_do_not_exist_even_if_the_metadata_is_among_them(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path) as (_, client):
        (topic,) = piece(SnapshotId(end_offset=2, epoch=1)).topics
        answer = await client.call(
            FetchSnapshotRequest(topics=(topic, topic)), 1, FetchSnapshotResponse
        )
        found = [part.error_code for each in answer.topics for part in each.partitions]
        assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
