"""The coordinators' checkpoints over FetchSnapshot, and their logs over Fetch, for standbys."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.messages.fetch import FetchResponse
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotId,
    SnapshotPart,
    TopicSnapshot,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.coordination import checkpoint_offers
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.security.acls import Operation, ResourceType
from storage.files.paths import checkpoint_path
from storage.formats.coordinator_checkpoint import HEADER_BYTES, decode_footer, decode_header
from tests.harness.authorized_broker import allow, authorizing_broker, set_acls
from tests.harness.offsets_world import commit
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    fetch_request,
    only_fetched,
    serving_broker,
)
from tests.server.handlers.test_fetch_snapshot import INTERNAL

SETTINGS = INTERNAL | {"offsets_topic_num_partitions": "2", "log_cleaner_enable": "false"}
NEWEST = SnapshotId(end_offset=-1, epoch=-1)


@asynccontextmanager
async def leading(folder: Path, **more: str) -> AsyncIterator[tuple[ServedBroker, RawClient]]:
    """A broker with committed offsets, and a client of its internal listener."""
    async with serving_broker(folder, **SETTINGS, **more) as served:
        await commit_some(served)
        yield served, await served.connect("INTERNAL")


async def commit_some(served: ServedBroker, count: int = 10) -> None:
    topic = served.broker.groups.topic
    await topic.ensure()
    for number in range(count):
        await topic.append(0, [commit(number, number)])


def piece(
    snapshot: SnapshotId, position: int = 0, *, follower: int = 1, partition: int = 0
) -> FetchSnapshotRequest:
    wanted = PartitionSnapshot(
        partition=partition,
        current_leader_epoch=-1,
        snapshot_id=snapshot,
        position=position,
        replica_directory_id=uuid.UUID(int=follower),
    )
    topic = TopicSnapshot(name=OFFSETS_TOPIC, partitions=(wanted,))
    return FetchSnapshotRequest(topics=(topic,), max_bytes=1)


async def got(client: RawClient, request: FetchSnapshotRequest) -> SnapshotPart:
    response = await client.call(request, 1, FetchSnapshotResponse)
    assert response.error_code == 0
    ((part,),) = [topic.partitions for topic in response.topics]
    return part


def data_of(part: SnapshotPart) -> bytes:
    assert part.error_code == ErrorCode.NONE
    return bytes(part.unaligned_records or b"")  # type: ignore[arg-type]


def checkpoint_of(served: ServedBroker) -> bytes:
    """Returns the bytes of the leader's checkpoint."""
    return Path(checkpoint_path(served.log(OFFSETS_TOPIC).directory)).read_bytes()


async def test_the_newest_is_made_up_to_the_high_watermark(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        part = await got(client, piece(NEWEST, 10))

        data = data_of(part)
        header = decode_header(data[:HEADER_BYTES], "")
        assert (header.end_offset, part.snapshot_id.end_offset) == (10, 10)
        assert header.last_epoch == part.snapshot_id.epoch
        assert (part.position, part.size) == (0, len(data))
        assert decode_footer(data[-40:], "").records == 10
        assert checkpoint_of(served) == data


async def test_one_that_ends_late_enough_is_not_made_again(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        first = await got(client, piece(NEWEST, 10))
        await commit_some(served)

        assert (await got(client, piece(NEWEST, 10))).snapshot_id == first.snapshot_id
        assert (await got(client, piece(NEWEST, 11))).snapshot_id.end_offset == 20


async def test_one_that_no_longer_counts_is_made_again(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, client):
        await got(client, piece(NEWEST))
        await commit_some(served)
        served.log(OFFSETS_TOPIC).delete_records(Offset(19))

        part = await got(client, piece(NEWEST))

        assert decode_header(data_of(part)[:HEADER_BYTES], "").start_offset == 19


async def test_a_partition_without_records_has_none(tmp_path: Path) -> None:
    async with leading(tmp_path) as (_, client):
        part = await got(client, piece(NEWEST, partition=1))
        assert part.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        part = await got(client, piece(NEWEST, 11))
        assert part.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        part = await got(client, piece(NEWEST, partition=7))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_one_that_is_being_downloaded_stays_when_a_newer_one_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.handlers.shared.checkpoint_pieces.PIECE_BYTES_MIN", 100)
    async with leading(tmp_path) as (served, client):
        first = await got(client, piece(NEWEST))
        expected = checkpoint_of(served)
        await commit_some(served)
        await got(client, piece(NEWEST, 20, follower=2))

        data = data_of(first)
        while len(data) < first.size:
            data += data_of(await got(client, piece(first.snapshot_id, len(data))))

        assert data == expected


async def test_a_minute_after_the_last_piece_it_is_closed_and_a_replaced_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading(tmp_path) as (served, client):
        first = await got(client, piece(NEWEST))
        await commit_some(served)
        upkeep = served.broker.checkpoints
        assert upkeep is not None
        await upkeep.offers.expire()
        assert upkeep.offers.open_count == 1
        monkeypatch.setattr(
            upkeep.offers,
            "_clock",
            lambda: asyncio.get_running_loop().time() + checkpoint_offers.OPEN_SECONDS + 1e6,
        )
        await upkeep.offers.expire()
        assert upkeep.offers.open_count == 0

        # It still has the partition's name.
        assert data_of(await got(client, piece(first.snapshot_id)))
        await upkeep.offers.close()
        await got(client, piece(NEWEST, 20))
        await upkeep.offers.close()
        part = await got(client, piece(first.snapshot_id))
        assert part.error_code == ErrorCode.SNAPSHOT_NOT_FOUND


async def test_followers_that_ask_at_the_same_time_wait_for_the_same_one(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, _):
        clients = [await served.connect("INTERNAL") for _ in range(2)]
        parts = await asyncio.gather(
            *(got(client, piece(NEWEST, 10, follower=n)) for n, client in enumerate(clients, 1))
        )
        assert parts[0].snapshot_id == parts[1].snapshot_id
        assert data_of(parts[0]) == data_of(parts[1])


async def test_one_that_is_made_for_a_follower_that_needs_less_is_not_answered_to_another(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path) as (served, client):
        upkeep = served.broker.checkpoints
        assert upkeep is not None
        log = served.log(OFFSETS_TOPIC)
        running = await upkeep.newest(served.broker.groups.topic, log, 10, 0)
        await commit_some(served)

        part = await got(client, piece(NEWEST, 20))
        while part.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            part = await got(client, piece(NEWEST, 20))

        assert part.snapshot_id.end_offset == 20
        assert running.done()


async def test_no_more_downloads_at_a_time_than_the_property_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.handlers.shared.checkpoint_pieces.PIECE_BYTES_MIN", 100)
    async with leading(tmp_path, replog_follower_snapshots_max="1") as (_, client):
        first = await got(client, piece(NEWEST))
        assert len(data_of(first)) < first.size

        other = await got(client, piece(NEWEST, follower=2))
        assert other.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

        rest = await got(client, piece(first.snapshot_id, first.size - 50))
        assert len(data_of(rest)) == 50
        assert data_of(await got(client, piece(NEWEST, follower=2)))


async def test_a_checkpoint_that_takes_long_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.handlers.shared.checkpoint_pieces.PATIENCE_SECONDS", 0)
    async with leading(tmp_path) as (_, client):
        codes = []
        while (part := await got(client, piece(NEWEST, 10))).error_code:
            codes.append(part.error_code)
        assert set(codes) == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert part.snapshot_id.end_offset == 10


async def test_positions_outside_of_it_are_refused(tmp_path: Path) -> None:
    async with leading(tmp_path) as (_, client):
        first = await got(client, piece(NEWEST))
        for position in (-1, first.size, 1 << 40):
            part = await got(client, piece(first.snapshot_id, position))
            assert part.error_code == ErrorCode.POSITION_OUT_OF_RANGE


async def test_other_listeners_have_no_checkpoints(tmp_path: Path) -> None:
    async with leading(tmp_path) as (served, _):
        client = await served.connect()
        part = await got(client, piece(NEWEST))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_cluster_action_is_enough_to_fetch_the_coordinators_topics_there(
    tmp_path: Path,
) -> None:
    async with authorizing_broker(tmp_path, **SETTINGS) as served:
        await commit_some(served)
        assert (await coded(served, "INTERNAL")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        acl = allow(ResourceType.CLUSTER, "kafka-cluster", Operation.CLUSTER_ACTION)
        await set_acls(served, [acl])
        assert (await coded(served, "INTERNAL")) == ErrorCode.NONE
        assert (await coded(served, "PLAINTEXT")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await served.create("orders")
        assert (await coded(served, "INTERNAL", "orders")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def coded(served: ServedBroker, listener: str, topic: str = OFFSETS_TOPIC) -> int:
    client = await served.connect(listener)
    request = fetch_request([(topic, 0, 0)])
    return only_fetched(await client.call(request, 12, FetchResponse)).error_code
