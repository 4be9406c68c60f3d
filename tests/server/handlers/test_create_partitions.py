"""CreatePartitions: each topic on its own, with Kafka's refusals word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

Assignments = tuple[tuple[int, ...], ...] | None


def grown(name: str, count: int, assignments: Assignments = None) -> CreatePartitionsTopic:
    assigned = None
    if assignments is not None:
        assigned = tuple(CreatePartitionsAssignment(broker_ids=each) for each in assignments)
    return CreatePartitionsTopic(name=name, count=count, assignments=assigned)


async def ask(
    served: ServedBroker,
    *topics: CreatePartitionsTopic,
    version: int = 3,
    validate_only: bool = False,
    timeout_ms: int = 60_000,
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(
        topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
    )
    return list((await served.call(request, version, CreatePartitionsResponse)).results)


def count_of(served: ServedBroker, name: str = "orders") -> int:
    topic = served.broker.topics.get(name)
    assert topic is not None
    return len(topic.partitions)


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_take_records_at_once(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=1)
        (result,) = await ask(served, grown("orders", 3), version=version)
        assert (result.name, result.error_code) == ("orders", ErrorCode.NONE)
        assert result.error_message is None
        assert count_of(served) == 3
        answer = await served.produce("orders", partition=2)
        assert answer.base_offset == 0
    async with serving_broker(tmp_path) as served:
        assert served.log("orders", 2).log_end_offset == 1


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (grown("orders", 2), 37, "Topic already has 2 partition(s)."),
        (
            grown("orders", 1),
            37,
            "The topic orders currently has 2 partition(s); 1 would not be an increase.",
        ),
        (grown("nowhere", 3), 3, "The topic 'nowhere' does not exist."),
        (
            grown("orders", 2**31 - 1),
            44,
            "Excessively large number of partitions per request.",
        ),
        (
            grown("orders", 4, ((1,),)),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            grown("orders", 3, ((2,),)),
            39,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            grown("orders", 3, ((),)),
            39,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            grown("orders", 3, ((1, 1),)),
            39,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (grown("orders", 1, ((2,),)), 37, None),
    ],
    ids=[
        "as_many", "fewer", "unknown", "too_many", "assignments_missing", "other_broker",
        "no_broker", "broker_twice", "the_count_is_looked_at_first",
    ],
)  # fmt: skip
async def test_what_cannot_be_done_is_refused_and_nothing_is_changed(
    tmp_path: Path, asked: CreatePartitionsTopic, code: int, message: str | None
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        (result,) = await ask(served, asked)
        assert (result.name, result.error_code) == (asked.name, code)
        assert message is None or result.error_message == message
        assert count_of(served) == 2


async def test_assignments_to_this_broker_are_taken(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        (result,) = await ask(served, grown("orders", 3, ((1,), (1,))))
        assert (result.error_code, count_of(served)) == (ErrorCode.NONE, 3)


async def test_a_topic_named_twice_is_refused_and_the_others_grow(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        for name in ("once", "twice"):
            await served.create(name)
        results = await ask(served, grown("twice", 2), grown("once", 2), grown("twice", 3))
        assert [(r.name, r.error_code, r.error_message) for r in results] == [
            ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
            ("once", ErrorCode.NONE, None),
        ]
        assert (count_of(served, "once"), count_of(served, "twice")) == (2, 1)


async def test_validate_only_says_what_would_happen_and_changes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        fine, wrong = await ask(served, grown("orders", 9), grown("nowhere", 1), validate_only=True)
        assert fine.error_code == ErrorCode.NONE
        assert wrong.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert count_of(served) == 2


async def test_groups_keep_their_places_in_the_topic_of_their_offsets(tmp_path: Path) -> None:
    """A group lives in the partition that its id and their number say."""
    async with serving_broker(tmp_path) as served:
        await served.create("__consumer_offsets", partitions=2)
        (result,) = await ask(served, grown("__consumer_offsets", 3))
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert count_of(served, "__consumer_offsets") == 2


async def test_more_than_ten_thousand_new_partitions_in_a_request_are_refused_as_a_whole(
    tmp_path: Path,
) -> None:
    """Kafka 4.3.1 makes 10,000 of them, and answers UNKNOWN_SERVER_ERROR."""
    too_many = (44, "Excessively large number of partitions per request.")
    async with serving_broker(tmp_path) as served:
        for name in ("one", "two"):
            await served.create(name)
        for topics in (
            [grown("one", 10_002)],
            [grown("one", 6_001), grown("two", 4_002)],
            [grown("one", 2**31 - 1), grown("two", 2**31 - 1)],
        ):
            for validate_only in (True, False):
                results = await ask(served, *topics, validate_only=validate_only)
                answers = {(r.error_code, r.error_message) for r in results}
                assert answers == {too_many}
                assert (count_of(served, "one"), count_of(served, "two")) == (1, 1)
        results = await ask(
            served, grown("nope", 20_000), grown("one", 10_001), grown("two", 0), validate_only=True
        )
        assert [r.error_code for r in results] == [3, 0, 37]


@pytest.mark.parametrize(("timeout_ms", "code"), [(0, 7), (-1, 7), (60_000, 0)])
async def test_a_growth_whose_time_is_over_is_not_begun(
    tmp_path: Path, timeout_ms: int, code: int
) -> None:
    """What Kafka 4.3.1 answers, without a message."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        (result,) = await ask(served, grown("orders", 3), timeout_ms=timeout_ms)
        assert (result.error_code, result.error_message) == (code, None)
        assert count_of(served) == (1 if code else 3)
