"""DescribeQuorum: this broker is the quorum. Shape, codes and messages are Kafka 4.3.1's."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    TopicData,
)
from server.topics.names import parse_id
from tests.harness.served_broker import ServedBroker, serving_broker

METADATA = "__cluster_metadata"


async def describe(
    served: ServedBroker, *asked: tuple[str, list[int]], version: int = 2
) -> DescribeQuorumResponse:
    topics = tuple(
        AskedTopic(
            topic_name=name,
            partitions=tuple(AskedPartition(partition_index=number) for number in numbers),
        )
        for name, numbers in asked
    )
    request = DescribeQuorumRequest(topics=topics)
    return await served.call(request, version, DescribeQuorumResponse)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_one_voter_leads_and_has_all_there_is(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        response = await describe(served, (METADATA, [0]), version=version)
        (directory,) = served.broker.directories
        revision = served.broker.metadata_revision
        host, port = served.broker.addresses["PLAINTEXT"]

    assert response.error_code == 0
    ((quorum,),) = [topic.partitions for topic in response.topics]
    assert (quorum.error_code, quorum.leader_id) == (0, 1)
    assert quorum.leader_epoch == directory.leader_epoch
    assert quorum.high_watermark == revision > 0
    assert quorum.observers == ()
    (voter,) = quorum.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, revision)
    assert (voter.last_fetch_timestamp > 0) is (version >= 1)
    assert voter.last_caught_up_timestamp == voter.last_fetch_timestamp
    if version < 2:
        assert (response.nodes, voter.replica_directory_id.int) == ((), 0)
        return
    assert voter.replica_directory_id == parse_id(directory.directory_id)
    reached = Listener(name="PLAINTEXT", host=host, port=port)
    assert response.nodes == (Node(node_id=1, listeners=(reached,)),)


async def test_the_log_end_offset_grows_and_the_epoch_with_each_start(tmp_path: Path) -> None:
    seen = []
    for name in ("orders", "users"):
        async with serving_broker(tmp_path) as served:
            await served.create(name)
            ((quorum,),) = [
                topic.partitions for topic in (await describe(served, (METADATA, [0]))).topics
            ]
            seen.append((quorum.leader_epoch, quorum.high_watermark))
    assert seen[0] < seen[1]
    assert seen[0][1] < seen[1][1]


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    "asked",
    [
        [("orders", [0])],
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0, 0])],
        [(METADATA, [0]), (METADATA, [0])],
        [(METADATA, [0]), ("orders", [0])],
        [(METADATA, [])],
        [],
    ],
    ids=str,
)
async def test_any_other_question_is_answered_for_all_that_it_names(
    tmp_path: Path, asked: list[tuple[str, list[int]]], version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        response = await describe(served, *asked, version=version)
    text = "This server does not host this topic-partition." if version >= 2 else ""
    assert response == DescribeQuorumResponse(
        error_code=0,
        topics=tuple(
            TopicData(
                topic_name=name,
                partitions=tuple(
                    PartitionData(
                        partition_index=number,
                        error_code=3,
                        error_message=text,
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=(),
                        observers=(),
                    )
                    for number in numbers
                ),
            )
            for name, numbers in asked
        ),
    )
