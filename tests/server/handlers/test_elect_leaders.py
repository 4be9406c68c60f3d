"""ElectLeaders: the one replica of a partition leads it. Codes and messages are Kafka 4.3.1's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = (84, "Leader election not needed for topic partition.")

Results = list[tuple[str, list[tuple[int, int, str | None]]]]


async def elect(
    served: ServedBroker,
    asked: Sequence[tuple[str, Sequence[int]]] | None,
    *,
    election_type: int = PREFERRED,
    version: int = 2,
) -> tuple[int, Results]:
    """The code of the whole answer, and by topic the number, code and message of each partition."""
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if asked is None
        else tuple(TopicPartitions(topic=name, partitions=tuple(ns)) for name, ns in asked),
    )
    response = await served.call(request, version, ElectLeadersResponse)
    return response.error_code, [
        (
            topic.topic,
            [(each.partition_id, each.error_code, each.error_message) for each in parts],
        )
        for topic in response.replica_election_results
        for parts in [topic.partition_result]
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_each_partition_that_is_named_is_answered(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        asked = [("orders", [0, 0]), ("nowhere", [0]), ("orders", [7, -1]), ("a b", []), ("", [0])]
        answer = await elect(served, asked, version=version)
    assert answer == (
        ErrorCode.NONE,
        [
            ("orders", [(0, *NOT_NEEDED), (0, *NOT_NEEDED)]),
            ("nowhere", [(0, 3, "No such topic as nowhere")]),
            (
                "orders",
                [
                    (7, 3, "No such partition as orders-7"),
                    (-1, 3, "No such partition as orders--1"),
                ],
            ),
            ("a b", []),
            ("", [(0, 3, "No such topic as ")]),
        ],
    )


@pytest.mark.parametrize("election_type", [PREFERRED, UNCLEAN])
async def test_of_all_partitions_none_needs_an_election(tmp_path: Path, election_type: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        assert await elect(served, None, election_type=election_type) == (0, [("orders", [])])
        assert await elect(served, [], election_type=election_type) == (0, [])


@pytest.mark.parametrize("election_type", [2, -1])
async def test_an_unknown_election_type_is_refused(tmp_path: Path, election_type: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        answer = await elect(served, [("orders", [0])], election_type=election_type)
        text = f"Unknown election type {election_type}"
    assert answer == (ErrorCode.INVALID_REQUEST, [("orders", [(0, 42, text)])])


@pytest.mark.parametrize(
    ("election_type", "code", "message"),
    [
        (PREFERRED, 80, "The preferred leader was not available."),
        (UNCLEAN, 83, "Eligible topic partition leaders are not available."),
    ],
)
async def test_a_partition_whose_log_is_offline_has_no_leader_to_elect(
    tmp_path: Path, election_type: int, code: int, message: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        served.log("orders", 1).go_offline("the test says so")
        offline = [("orders", [(1, code, message)])]
        named = await elect(served, [("orders", [1])], election_type=election_type)
        everything = await elect(served, None, election_type=election_type)
    assert named == everything == (ErrorCode.NONE, offline)
