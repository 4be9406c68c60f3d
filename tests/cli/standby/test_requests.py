"""Answers that do not fit to the request are refused before the copy sees them."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from cli.standby.requests import (
    Asker,
    Refused,
    check_term,
    fetch_answer,
    fetch_request,
    snapshot_answer,
    snapshot_request,
)
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
    SnapshotId,
    SnapshotPart,
    TopicSnapshotParts,
)
from protocol.messages.fetch_snapshot import LeaderIdAndEpoch as SnapshotLeader
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from replog import entry, messages
from replog.batches import encode_batch
from replog.entry import Frame, Kind

ASKED = messages.Fetch(5, 2)
ASKER = Asker(directory_id=uuid.UUID(int=7), cluster_id="c", term=3)
WANTED = messages.FetchSnapshot(entry.SnapshotId(5, 2), 10)


def frame(index: int, term: int, count: int = 1) -> Frame:
    return Frame(index, term, ((Kind.COMMAND, b"x"),) * count)


def answer(*frames: Frame, **fields: object) -> FetchResponse:
    values = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 9,
        "current_leader": LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
        "records": b"".join(map(encode_batch, frames)),
    } | fields
    data = PartitionData(**values)  # type: ignore[arg-type]
    return FetchResponse(responses=(FetchableTopicResponse(partitions=(data,)),))


def test_a_request_says_who_asks_and_what_it_has() -> None:
    request = fetch_request(ASKED, ASKER)
    ((partition,),) = [topic.partitions for topic in request.topics]
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (5, 2)
    assert (partition.replica_directory_id.int, request.cluster_id) == (7, "c")
    ((wanted,),) = [t.partitions for t in snapshot_request(WANTED, ASKER).topics]
    assert (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch, wanted.position) == (5, 2, 10)


def test_the_three_answers_to_a_fetch() -> None:
    frames = [frame(5, 2, 2), frame(7, 3)]
    found = fetch_answer(ASKED, answer(*frames))
    assert found.answer == messages.Entries(3, ASKED, frames)
    assert (found.term, found.end) == (3, 9)
    diverging = fetch_answer(ASKED, answer(diverging_epoch=EpochEndOffset(epoch=1, end_offset=3)))
    assert diverging.answer == messages.Diverging(3, ASKED, 1, 3)
    offered = fetch_answer(ASKED, answer(snapshot_id=OfferedId(end_offset=8, epoch=2)))
    assert offered.answer == messages.SnapshotOffered(3, entry.SnapshotId(8, 2), 0)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(answer(frame(6, 2)), id="entries_after_a_gap"),
        pytest.param(answer(frame(4, 2)), id="entries_that_are_there_already"),
        pytest.param(answer(frame(4, 2, 2)), id="entries_of_which_some_are_there_already"),
        pytest.param(answer(frame(5, 1)), id="entries_of_an_older_term"),
        pytest.param(answer(frame(5, 4)), id="entries_of_a_later_term_than_the_leaders"),
        pytest.param(answer(records=b"garbage"), id="no_batches"),
        pytest.param(answer(snapshot_id=OfferedId(end_offset=0, epoch=1)), id="no_snapshot"),
        pytest.param(answer(snapshot_id=OfferedId(end_offset=9, epoch=4)), id="later_snapshot"),
        pytest.param(
            answer(diverging_epoch=EpochEndOffset(epoch=4, end_offset=2)), id="later_epoch"
        ),
        pytest.param(answer(diverging_epoch=EpochEndOffset(epoch=1, end_offset=0)), id="no_end"),
        pytest.param(FetchResponse(responses=()), id="nothing"),
    ],
)
def test_what_is_no_answer_to_the_fetch_is_refused(response: FetchResponse) -> None:
    with pytest.raises(ProtocolError):
        fetch_answer(ASKED, response)


def test_an_answer_in_another_term_than_the_one_asked_for_is_refused() -> None:
    answered = fetch_answer(ASKED, answer())
    check_term(ASKER, answered)
    check_term(replace(ASKER, term=-1), answered)
    with pytest.raises(ProtocolError, match="in term 3 to a request in term 2"):
        check_term(replace(ASKER, term=2), answered)


def part(**fields: object) -> FetchSnapshotResponse:
    values = {
        "index": 0,
        "error_code": 0,
        "snapshot_id": SnapshotId(end_offset=5, epoch=2),
        "current_leader": SnapshotLeader(leader_id=1, leader_epoch=3),
        "size": 14,
        "position": 10,
        "unaligned_records": b"data",
    } | fields
    made = SnapshotPart(**values)  # type: ignore[arg-type]
    topic = TopicSnapshotParts(name="t", partitions=(made,))
    return FetchSnapshotResponse(error_code=0, topics=(topic,))


def test_bytes_of_the_snapshot() -> None:
    found = snapshot_answer(WANTED, part())
    assert found.answer == messages.SnapshotBytes(3, WANTED.snapshot, 10, b"data", 14)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(part(snapshot_id=SnapshotId(end_offset=6, epoch=2)), id="another_snapshot"),
        pytest.param(part(position=9), id="another_position"),
        pytest.param(part(size=13), id="more_than_there_is"),
        pytest.param(part(unaligned_records=b""), id="no_bytes"),
        pytest.param(FetchSnapshotResponse(error_code=0, topics=()), id="nothing"),
    ],
)
def test_what_is_no_piece_of_the_snapshot_is_refused(response: FetchSnapshotResponse) -> None:
    with pytest.raises(ProtocolError):
        snapshot_answer(WANTED, response)


def test_an_error_has_its_code_and_the_leaders_term() -> None:
    with pytest.raises(Refused) as refused:
        fetch_answer(ASKED, answer(error_code=ErrorCode.FENCED_LEADER_EPOCH))
    assert (refused.value.code, refused.value.term) == (ErrorCode.FENCED_LEADER_EPOCH, 3)
    with pytest.raises(Refused) as unknown:
        fetch_answer(ASKED, FetchResponse(error_code=999, responses=()))
    assert unknown.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
