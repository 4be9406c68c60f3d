"""CreateTopics: defaults, refusals with Kafka's codes, and each topic on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.primitives import ZERO_UUID
from tests.harness.served_broker import ServedBroker, serving_broker


def topic(
    name: str = "orders", partitions: int = 1, replicas: int = 1, **configs: str | None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


def assigned(*partitions: tuple[int, tuple[int, ...]], **counts: int) -> CreatableTopic:
    return CreatableTopic(
        **{"name": "orders", "num_partitions": -1, "replication_factor": -1, "configs": ()}
        | counts,  # type: ignore[arg-type]
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in partitions
        ),
    )


async def create(
    served: ServedBroker, *topics: CreatableTopic, version: int = 7, **settings: Any
) -> list[CreatableTopicResult]:
    fields: dict[str, Any] = {"topics": topics, "timeout_ms": 60_000}
    request = CreateTopicsRequest(**fields | settings)
    return list((await served.call(request, version, CreateTopicsResponse)).topics)


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_in_every_version(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        wish = topic(partitions=3, cleanup_policy="compact")
        (result,) = await create(served, wish, version=version)
        created = served.broker.topics.get("orders")
        assert created is not None
        assert len(created.partitions) == 3
        assert created.config.is_compacted
        assert (result.error_code, result.name) == (ErrorCode.NONE, "orders")
        assert result.error_message is None
        assert result.topic_id == (created.id if version >= 7 else ZERO_UUID)
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            values = {config.name: config.value for config in result.configs or ()}
            assert values["cleanup.policy"] == "compact"


async def test_minus_one_leaves_it_to_the_broker(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, num_partitions="6") as served:
        (result,) = await create(served, topic(partitions=-1, replicas=-1))
        assert (result.num_partitions, result.replication_factor) == (6, 1)


@pytest.mark.parametrize(
    ("wish", "code", "part_of_message"),
    [
        pytest.param(
            topic(replicas=3), ErrorCode.INVALID_REPLICATION_FACTOR, "3 time(s)", id="replicas_3"
        ),
        pytest.param(
            topic(replicas=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "larger than 0",
            id="replicas_0",
        ),
        pytest.param(
            topic(partitions=0), ErrorCode.INVALID_PARTITIONS, "non-positive", id="partitions_0"
        ),
        pytest.param(
            topic(partitions=-2), ErrorCode.INVALID_PARTITIONS, "non-positive", id="partitions_-2"
        ),
        pytest.param(
            topic(partitions=2**31 - 1),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large",
            id="partitions_2_31",
        ),
        pytest.param(topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "a b", id="space"),
        pytest.param(topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty", id="no_name"),
        pytest.param(topic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS, "'taken'", id="taken"),
        pytest.param(topic("ta.ken_"), ErrorCode.INVALID_TOPIC_EXCEPTION, "ta_ken.", id="collides"),
        pytest.param(
            topic(no_such="1"), ErrorCode.INVALID_CONFIG, "no.such", id="unknown_property"
        ),
        pytest.param(
            topic(cleanup_policy="shred"), ErrorCode.INVALID_CONFIG, "shred", id="bad_value"
        ),
        pytest.param(
            topic(segment_bytes="1"), ErrorCode.INVALID_CONFIG, "at least", id="out_of_range"
        ),
        pytest.param(
            topic(cleanup_policy=None), ErrorCode.INVALID_CONFIG, "cleanup.policy", id="null_value"
        ),
        pytest.param(
            assigned((0, (2,))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "broker 2,",
            id="other_broker",
        ),
        pytest.param(
            assigned((0, (1, 2))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "broker 2,",
            id="two_brokers",
        ),
        pytest.param(
            assigned((0, (1, 1))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "the broker 1 more than once",
            id="one_broker_twice",
        ),
        pytest.param(
            assigned((0, ())), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty", id="no_broker"
        ),
        pytest.param(
            assigned((0, (1,)), (0, (1,))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "multiple manual partition assignments for partition 0",
            id="one_partition_twice",
        ),
        pytest.param(
            topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "prohibited", id="kafkas_own"
        ),
        pytest.param(
            assigned((0, (1,)), (2, (1,))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "consecutive",
            id="gap_in_assignments",
        ),
        pytest.param(
            assigned((0, (1,)), num_partitions=1),
            ErrorCode.INVALID_REQUEST,
            "-1",
            id="assignments_and_count",
        ),
    ],
)
async def test_a_wish_that_cannot_be_met_is_refused_with_a_reason(
    tmp_path: Path, wish: CreatableTopic, code: ErrorCode, part_of_message: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("taken")
        await served.create("ta_ken.")
        (result,) = await create(served, wish)
        assert (result.name, result.error_code) == (wish.name, code)
        assert part_of_message in (result.error_message or "")
        assert len(served.broker.topics) == 2


async def test_assignments_to_this_broker_are_taken(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        (result,) = await create(served, assigned((1, (1,)), (0, (1,))))
        assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 2)


async def test_validate_only_creates_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        fine, wrong = await create(served, topic("a"), topic("b", replicas=2), validate_only=True)
        assert (fine.error_code, fine.num_partitions) == (ErrorCode.NONE, 1)
        assert fine.topic_id == ZERO_UUID
        assert wrong.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert len(served.broker.topics) == 0


async def test_a_topic_named_twice_is_refused_and_the_others_are_created(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        results = await create(served, topic("twice"), topic("once"), topic("twice"))
        assert {result.name: result.error_code for result in results} == {
            "twice": ErrorCode.INVALID_REQUEST,
            "once": ErrorCode.NONE,
        }
        assert [each.name for each in served.broker.topics.all()] == ["once"]


async def test_a_topic_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        (result,) = await create(served, topic(partitions=2, cleanup_policy="compact"))
    async with serving_broker(tmp_path) as served:
        kept = served.broker.topics.get("orders")
        assert kept is not None
        assert (kept.id, len(kept.partitions)) == (result.topic_id, 2)
        assert kept.config.is_compacted


TOO_MANY = (44, "Excessively large number of partitions per request.")
FINE = (0, None)
TWICE = (42, "Duplicate topic name.")


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("topics", "answers"),
    [
        pytest.param([topic("a", 10_001)], {"a": TOO_MANY}, id="one"),
        pytest.param(
            [topic("b", 6_000), topic("c", 6_000)], {"b": TOO_MANY, "c": TOO_MANY}, id="sum"
        ),
        pytest.param(
            [topic("b", 10_001), topic("d")], {"b": TOO_MANY, "d": TOO_MANY}, id="with_a_small_one"
        ),
        pytest.param(
            [topic("b", 6_000), topic("b", 6_000), topic("d")],
            {"b": TWICE, "d": FINE},
            id="duplicates_do_not_count",
        ),
        pytest.param(
            [topic("b!", 10_001), topic("d")], {"b!": TOO_MANY, "d": TOO_MANY}, id="a_bad_name"
        ),
        pytest.param(
            [topic("b", -1), topic("d", 10_000)],
            {"b": TOO_MANY, "d": TOO_MANY},
            id="the_default_counts",
        ),
        pytest.param(
            [assigned(*((index, (1,)) for index in range(10_001))), topic("d")],
            {"orders": TOO_MANY, "d": TOO_MANY},
            id="assignments_count",
        ),
        pytest.param(
            [topic("taken", 10_001), topic("d")],
            {"taken": TOO_MANY, "d": TOO_MANY},
            id="a_topic_that_exists",
        ),
    ],
)
async def test_more_than_ten_thousand_partitions_in_a_request_are_refused_as_a_whole(
    tmp_path: Path,
    topics: list[CreatableTopic],
    answers: dict[str, tuple[int, str | None]],
    validate_only: bool,
) -> None:
    """What Kafka 4.3.1 answers to the same requests."""
    async with serving_broker(tmp_path) as served:
        await served.create("taken")
        results = await create(served, *topics, validate_only=validate_only)
        assert {r.name: (r.error_code, r.error_message) for r in results} == answers
        there = {each.name for each in served.broker.topics.all()}
        made = {name for name, answer in answers.items() if answer == FINE}
        assert there == {"taken"} | (set() if validate_only else made)


@pytest.mark.parametrize(("timeout_ms", "code"), [(0, 7), (-1, 7), (60_000, 0)])
async def test_a_creation_whose_time_is_over_is_not_begun(
    tmp_path: Path, timeout_ms: int, code: int
) -> None:
    """What Kafka 4.3.1 answers: the topic is not there later either. Duplicates it refuses first."""
    async with serving_broker(tmp_path) as served:
        results = await create(served, topic("t"), topic("q"), topic("q"), timeout_ms=timeout_ms)
        assert [(r.name, r.error_code, r.error_message) for r in results] == [
            ("t", code, None),
            ("q", *TWICE),
        ]
        assert (served.broker.topics.get("t") is None) is (code == 7)
