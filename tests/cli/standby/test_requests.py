"""What a leader answers is checked before the follower gets it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from cli.standby.requests import (
    Asker,
    Refused,
    fetch_answer,
    fetch_request,
    snapshot_answer,
    snapshot_request,
)
from protocol.messages import fetch_snapshot
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from protocol.messages.fetch import SnapshotId as OfferedId
from protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    SnapshotPart,
    TopicSnapshotParts,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from replog.batches import encode_batch
from replog.entry import Frame, Kind, SnapshotId
from replog.messages import Diverging, Entries, Fetch, FetchSnapshot, SnapshotBytes, SnapshotOffered
from server.metadata.store import METADATA_TOPIC

ASKER = Asker(directory_id=uuid.UUID(int=7), cluster_id="c", term=4)
ASKED = Fetch(10, 3)
TAKING = FetchSnapshot(SnapshotId(20, 3), 5)


def fetched(**given: Any) -> FetchResponse:
    values = {
        "partition_index": 0,
        "error_code": ErrorCode.NONE,
        "high_watermark": 30,
        "log_start_offset": 1,
        "current_leader": LeaderIdAndEpoch(leader_id=1, leader_epoch=4),
        "records": b"",
    }
    data = PartitionData(**(values | given))
    topic = FetchableTopicResponse(topic=METADATA_TOPIC, partitions=(data,))
    return FetchResponse(responses=(topic,))


def took(**given: Any) -> FetchSnapshotResponse:
    values = {
        "index": 0,
        "error_code": ErrorCode.NONE,
        "snapshot_id": fetch_snapshot.SnapshotId(end_offset=20, epoch=3),
        "current_leader": fetch_snapshot.LeaderIdAndEpoch(leader_id=1, leader_epoch=4),
        "size": 9,
        "position": 5,
        "unaligned_records": b"abc",
    }
    part = SnapshotPart(**(values | given))
    topic = TopicSnapshotParts(name=METADATA_TOPIC, partitions=(part,))
    return FetchSnapshotResponse(error_code=ErrorCode.NONE, topics=(topic,))


def frame(index: int, term: int, count: int = 1) -> Frame:
    return Frame(index, term, tuple((Kind.COMMAND, b"x") for _ in range(count)))


def test_a_request_says_where_the_log_ends_and_who_asks() -> None:
    request = fetch_request(ASKED, ASKER)
    ((partition,),) = (topic.partitions for topic in request.topics)
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (10, 3)
    assert partition.current_leader_epoch == 4
    assert partition.replica_directory_id == ASKER.directory_id
    assert request.cluster_id == "c"
    asked = snapshot_request(TAKING, ASKER)
    ((wanted,),) = (topic.partitions for topic in asked.topics)
    assert (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch, wanted.position) == (20, 3, 5)


def test_entries_a_diverging_epoch_and_a_snapshot_are_told_apart() -> None:
    records = encode_batch(frame(10, 3, 2)) + encode_batch(frame(12, 4))
    answered = fetch_answer(ASKED, fetched(records=records))
    assert (answered.term, answered.end) == (4, 30)
    assert isinstance(answered.answer, Entries)
    assert [each.index for each in answered.answer.frames] == [10, 12]
    diverging = fetched(diverging_epoch=EpochEndOffset(epoch=2, end_offset=7))
    assert fetch_answer(ASKED, diverging).answer == Diverging(4, ASKED, 2, 7)
    offered = fetched(snapshot_id=OfferedId(end_offset=25, epoch=4))
    assert fetch_answer(ASKED, offered).answer == SnapshotOffered(4, SnapshotId(25, 4), 0)
    assert snapshot_answer(TAKING, took()).answer == SnapshotBytes(
        4, SnapshotId(20, 3), 5, b"abc", 9
    )


@pytest.mark.parametrize(
    "response",
    [
        FetchResponse(responses=()),
        fetched(records=encode_batch(frame(11, 3))),
        fetched(records=encode_batch(frame(8, 3))),
        fetched(records=encode_batch(frame(10, 2))),
        fetched(records=encode_batch(frame(10, 5))),
        fetched(snapshot_id=OfferedId(end_offset=0, epoch=1)),
        fetched(snapshot_id=OfferedId(end_offset=25, epoch=5)),
        fetched(diverging_epoch=EpochEndOffset(epoch=5, end_offset=7)),
        fetched(diverging_epoch=EpochEndOffset(epoch=1, end_offset=0)),
        fetched(records=b"no batch at all"),
    ],
)
def test_an_answer_that_no_leader_gives_is_refused(response: FetchResponse) -> None:
    with pytest.raises(ProtocolError):
        fetch_answer(ASKED, response)


@pytest.mark.parametrize(
    "response",
    [
        FetchSnapshotResponse(error_code=ErrorCode.NONE, topics=()),
        took(position=4),
        took(snapshot_id=fetch_snapshot.SnapshotId(end_offset=21, epoch=3)),
        took(unaligned_records=b""),
        took(unaligned_records=b"abcdefg"),
    ],
)
def test_bytes_that_were_not_asked_for_are_refused(response: FetchSnapshotResponse) -> None:
    with pytest.raises(ProtocolError):
        snapshot_answer(TAKING, response)


def test_an_error_says_its_code_and_the_leader_s_term() -> None:
    with pytest.raises(Refused) as refused:
        fetch_answer(ASKED, fetched(error_code=ErrorCode.FENCED_LEADER_EPOCH))
    assert (refused.value.code, refused.value.term) == (ErrorCode.FENCED_LEADER_EPOCH, 4)
    with pytest.raises(Refused) as refused:
        snapshot_answer(TAKING, took(error_code=12_345))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(Refused):
        fetch_answer(
            ASKED, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=())
        )
