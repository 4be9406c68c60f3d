"""Committed offsets through a broker: what is acknowledged, refused, and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.internal_topics.consumer_protocol import Subscription, write
from protocol.internal_topics.group_records import GroupRecord
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.events import Join, MemberProtocol, Sync
from server.coordination.groups.offset_checks import Claim
from server.coordination.producer import Producer
from tests.harness.offsets_world import commit, committed, end_transaction, until_appended
from tests.harness.served_broker import ServedBroker, serving_broker

OUTSIDE = Claim()


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        offsets = served.broker.offsets
        assert await offsets.commit("g", OUTSIDE, [commit(0, 5), commit(1, 6)]) == ErrorCode.NONE
        assert await offsets.commit("g", OUTSIDE, [commit(0, 7)]) == ErrorCode.NONE
        assert await offsets.delete("g", [("t", 1)]) == {("t", 1): ErrorCode.NONE}
        before = await committed(served)

    async with serving_broker(tmp_path) as served:
        assert await committed(served) == before == {("t", 0): 7}
        assert await committed(served, "h") == {}


async def test_a_group_with_a_generation_must_exist(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        member = Claim(member_id="m", generation=1)
        refused = await served.broker.offsets.commit("g", member, [commit()])
        assert refused == ErrorCode.GROUP_ID_NOT_FOUND
        assert len(served.broker.groups.table) == 0
        assert await served.broker.offsets.delete("g", []) == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_commit_that_cannot_be_written_is_no_commit_and_leaves_no_group(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        large = [commit(n, metadata="x" * 30_000) for n in range(40)]
        refused = await served.broker.offsets.commit("g", OUTSIDE, large)
        assert refused == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert len(served.broker.groups.table) == 0

        served.broker.directories[0].go_offline("broken")
        refused = await served.broker.offsets.commit("g", OUTSIDE, [commit()])
        assert refused == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(served.broker.groups.table) == 0


async def stable_member(served: ServedBroker, topic: str) -> Claim:
    """The only member of a stable group of consumers, subscribed to one topic."""
    subscription = write(Subscription(topics=(topic,), user_data=None))
    join = Join(
        member_id="",
        new_member_id="m",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(MemberProtocol("range", subscription),),
    )
    joined = await (await served.broker.groups.join("g", join))
    sync = Sync(member_id="m", generation=joined.generation, assignments={"m": b""})
    assert (await served.broker.groups.sync("g", sync)).error_code == ErrorCode.NONE
    return Claim(member_id="m", generation=joined.generation)


async def test_of_a_group_of_consumers_only_topics_go_that_nobody_is_subscribed_to(
    tmp_path: Path,
) -> None:
    properties = {"group_initial_rebalance_delay_ms": "0", "offsets_retention_minutes": "1"}
    async with serving_broker(tmp_path, **properties) as served:
        offsets = served.broker.offsets
        member = await stable_member(served, "t")
        records = [commit(0, 5), commit(0, 6, topic="u"), commit(0, 7, topic="v")]
        assert await offsets.commit("g", OUTSIDE, records) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await offsets.commit("g", member, records) == ErrorCode.NONE
        assert await offsets.delete("g", [("t", 0), ("u", 0)]) == {
            ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("u", 0): ErrorCode.NONE,
        }
        await offsets.expiry.expire()
        assert await committed(served) == {("t", 0): 5}


# In transactions.

PRODUCER = Producer(1000, 0)


def allow(_partition: int) -> ErrorCode:
    return ErrorCode.NONE


async def commit_in_transaction(
    served: ServedBroker,
    *records: GroupRecord,
    claim: Claim = OUTSIDE,
    producer: Producer = PRODUCER,
    may_write: Callable[[int], ErrorCode] = allow,
) -> ErrorCode:
    return await served.broker.offsets.commit_in_transaction(
        "g", claim, producer, records, may_write=may_write
    )


async def stable_offset(served: ServedBroker, partition: int = 0) -> int | ErrorCode:
    """What a fetch of stable offsets says."""
    topics = (OffsetFetchRequestTopic(name="t", partition_indexes=(partition,)),)
    request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
    answer = await served.call(request, 7, OffsetFetchResponse)
    (found,) = answer.topics[0].partitions
    return ErrorCode(found.error_code) or found.committed_offset


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_in_a_transaction_hold_from_its_commit_on_and_are_found_after_a_restart(
    tmp_path: Path, is_commit: bool
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.broker.offsets.commit("g", OUTSIDE, [commit(0, 5)])
        assert await commit_in_transaction(served, commit(0, 6)) == ErrorCode.NONE
        assert await committed(served) == {("t", 0): 5}
        assert await stable_offset(served) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await stable_offset(served, 1) == -1

    async with serving_broker(tmp_path) as served:
        assert await committed(served) == {("t", 0): 5}
        assert await stable_offset(served) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        await end_transaction(served.broker, "g", PRODUCER, is_commit=is_commit)
        assert await stable_offset(served) == (6 if is_commit else 5)

    async with serving_broker(tmp_path) as served:
        assert await committed(served) == {("t", 0): 6 if is_commit else 5}


async def test_who_does_not_ask_for_stable_offsets_gets_the_last_that_holds(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.broker.offsets.commit("g", OUTSIDE, [commit(0, 5)])
        await commit_in_transaction(served, commit(0, 6), commit(1, 7))
        for stable, expected in ((False, (0, 5)), (True, (88, -1))):
            group = OffsetFetchRequestGroup(group_id="g", topics=None)
            request = OffsetFetchRequest(groups=(group,), require_stable=stable)
            answer = await served.call(request, 8, OffsetFetchResponse)
            (found,) = answer.groups[0].topics[0].partitions
            assert (found.error_code, found.committed_offset) == expected


async def test_a_marker_that_comes_while_groups_are_read_ends_its_transaction(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await commit_in_transaction(served, commit(0, 6))

    async with serving_broker(tmp_path) as served:
        assert served.broker.groups.table.loads.is_loading
        await end_transaction(served.broker, "g", PRODUCER, is_commit=True)
        assert await committed(served) == {("t", 0): 6}


async def test_a_commit_whose_partition_is_in_no_transaction_writes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        refused = await commit_in_transaction(
            served, commit(0, 6), may_write=lambda _: ErrorCode.INVALID_TXN_STATE
        )
        assert refused == ErrorCode.INVALID_TXN_STATE
        assert len(served.broker.groups.table) == 0


async def test_a_producer_that_is_fenced_commits_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await commit_in_transaction(served, commit(0, 6))
        await end_transaction(served.broker, "g", Producer(1000, 1), is_commit=False)
        refused = await commit_in_transaction(served, commit(0, 7))
        assert refused == ErrorCode.INVALID_PRODUCER_EPOCH
        assert len(served.broker.groups.table) == 0


async def test_a_transaction_of_several_groups_ends_for_all_of_them(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, offsets_topic_num_partitions="1") as served:
        offsets = served.broker.offsets
        for group in ("g", "h"):
            records = [commit(0, 6, group=group)]
            await offsets.commit_in_transaction(group, OUTSIDE, PRODUCER, records, may_write=allow)
        await end_transaction(served.broker, "g", PRODUCER, is_commit=True)
        assert await committed(served) == await committed(served, "h") == {("t", 0): 6}


async def test_offsets_that_wait_for_a_transaction_keep_their_group(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, offsets_retention_minutes="1") as served:
        await commit_in_transaction(served, commit(0, 6, commit_timestamp=7))
        await served.broker.offsets.expiry.expire()
        assert len(served.broker.groups.table) == 1
        await end_transaction(served.broker, "g", PRODUCER, is_commit=False)
        assert len(served.broker.groups.table) == 0


@pytest.mark.parametrize("how", ["group", "topic", "offset"])
async def test_what_waits_for_a_transaction_is_deleted_with_the_rest(
    tmp_path: Path, how: str
) -> None:
    async with serving_broker(tmp_path) as served:
        broker = served.broker
        await broker.offsets.commit("g", OUTSIDE, [commit(0, 5)])
        await commit_in_transaction(served, commit(0, 6), commit(1, 7))
        match how:
            case "group":
                assert await broker.groups.delete("g") == ErrorCode.NONE
            case "topic":
                await broker.offsets.expiry.topics_deleted({"t"})
            case _:
                await broker.offsets.delete("g", [("t", 0), ("t", 1)])
        await end_transaction(broker, "g", PRODUCER, is_commit=True)
        assert await committed(served) == {}

    async with serving_broker(tmp_path) as served:
        assert await committed(served) == {}


async def test_a_member_commits_in_a_transaction_as_what_it_is(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, group_initial_rebalance_delay_ms="0") as served:
        no_group = await commit_in_transaction(served, commit(), claim=Claim(generation=1))
        member = await stable_member(served, "t")
        claims = {
            member: ErrorCode.NONE,
            # A client from before KIP-447 does not say who it is.
            OUTSIDE: ErrorCode.NONE,
            replace(member, generation=7): ErrorCode.ILLEGAL_GENERATION,
            replace(member, member_id="n"): ErrorCode.UNKNOWN_MEMBER_ID,
            Claim(member_id="m", instance_id="i"): ErrorCode.UNKNOWN_MEMBER_ID,
        }
        answers = {
            claim: await commit_in_transaction(served, commit(), claim=claim) for claim in claims
        }
        assert no_group == ErrorCode.GROUP_ID_NOT_FOUND
        assert answers == claims


# Over the wire.


def commit_request(*topics: OffsetCommitRequestTopic, generation: int = -1) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, member_id="", topics=topics
    )


def partitions(*metadata: str | None) -> tuple[OffsetCommitRequestPartition, ...]:
    return tuple(
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=number + 5, committed_metadata=text
        )
        for number, text in enumerate(metadata)
    )


@pytest.mark.parametrize("version", range(2, 10))
async def test_every_partition_of_a_commit_is_answered(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, offset_metadata_max_bytes="3") as served:
        await served.create("orders", 2)
        request = commit_request(
            OffsetCommitRequestTopic(name="orders", partitions=partitions(None, "abcd", "abc")),
            OffsetCommitRequestTopic(name="nowhere", partitions=partitions("")),
        )
        response = await served.call(request, version, OffsetCommitResponse)
        assert [
            (topic.name, [each.error_code for each in topic.partitions])
            for topic in response.topics
        ] == [
            ("orders", [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]),
            ("nowhere", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ]
        assert await committed(served) == {("orders", 0): 5, ("orders", 2): 7}


async def test_a_commit_of_nothing_makes_no_group(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, offset_metadata_max_bytes="3") as served:
        await served.create("orders")
        topic = OffsetCommitRequestTopic(name="orders", partitions=partitions("abcd"))
        response = await served.call(commit_request(topic), 9, OffsetCommitResponse)
        (answer,) = response.topics[0].partitions
        assert answer.error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert len(served.broker.groups.table) == 0


@pytest.mark.parametrize(
    ("version", "expected"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
async def test_a_generation_of_no_group_is_refused_in_the_words_of_the_version(
    tmp_path: Path, version: int, expected: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        topic = OffsetCommitRequestTopic(name="orders", partitions=partitions(""))
        request = commit_request(topic, generation=3)
        response = await served.call(request, version, OffsetCommitResponse)
        assert response.topics[0].partitions[0].error_code == expected


async def test_topics_are_named_by_id_since_v10(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        orders = await served.create("orders", 2)
        unknown = OffsetCommitRequestTopic(partitions=partitions(""))
        topic = OffsetCommitRequestTopic(topic_id=orders.id, partitions=partitions("m"))
        answer = await served.call(commit_request(topic, unknown), 10, OffsetCommitResponse)
        assert [t.partitions[0].error_code for t in answer.topics] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]
        asked = (
            OffsetFetchRequestTopics(topic_id=orders.id, partition_indexes=(0, 1)),
            OffsetFetchRequestTopics(partition_indexes=(0,)),
        )
        for topics in (asked, None):
            group = OffsetFetchRequestGroup(group_id="g", topics=topics)
            fetched = await served.call(
                OffsetFetchRequest(groups=(group,)), 10, OffsetFetchResponse
            )
            (found,) = fetched.groups
            assert found.topics[0].topic_id == orders.id
            assert found.topics[0].partitions[0].committed_offset == 5
            assert found.topics[0].partitions[0].metadata == "m"
        assert answer.topics[0].topic_id == orders.id


@pytest.mark.parametrize("version", range(1, 8))
async def test_one_group_is_fetched_with_holes_and_all(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        records = [commit(0, 5, metadata="m", leader_epoch=3), commit(1, 6, topic="u")]
        await served.broker.offsets.commit("g", OUTSIDE, records)
        topics = (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 9)),)
        request = OffsetFetchRequest(group_id="g", topics=topics)
        answer = await served.call(request, version, OffsetFetchResponse)
        (topic,) = answer.topics
        assert [(p.committed_offset, p.metadata, p.error_code) for p in topic.partitions] == [
            (5, "m", 0),
            (-1, "", 0),
        ]
        assert topic.partitions[0].committed_leader_epoch == (3 if version >= 5 else -1)
        if version >= 2:
            request = OffsetFetchRequest(group_id="g", topics=None)
            answer = await served.call(request, version, OffsetFetchResponse)
            assert {topic.name for topic in answer.topics} == {"t", "u"}


async def test_a_group_that_is_still_being_read_is_an_error_and_never_nothing(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.broker.offsets.commit("g", OUTSIDE, [commit(0, 5)])

    async with serving_broker(tmp_path) as served:
        await served.broker.groups.table.loads.loaded()
        table = served.broker.groups.table
        table._entries.clear()
        table.loads._loading.update(range(50))
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        answer = await served.call(OffsetFetchRequest(groups=(group,)), 8, OffsetFetchResponse)
        assert answer.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        old = await served.call(
            OffsetFetchRequest(group_id="g", topics=None), 5, OffsetFetchResponse
        )
        assert old.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = await served.broker.offsets.commit("g", OUTSIDE, [commit(0, 6)])
        assert refused == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# Groups that are deleted with all they have committed.


async def test_a_deleted_group_is_gone_with_what_was_being_committed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        offsets = served.broker.offsets
        await offsets.commit("g", OUTSIDE, [commit(0, 5)])
        committing = asyncio.create_task(offsets.commit("g", OUTSIDE, [commit(1, 6)]))
        await until_appended(served)
        assert await served.broker.groups.delete("g") == ErrorCode.NONE
        assert await committing == ErrorCode.NONE
        assert len(served.broker.groups.table) == 0

    async with serving_broker(tmp_path) as served:
        assert await committed(served) == {}


async def test_a_group_that_cannot_be_deleted_keeps_what_it_has_committed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.broker.offsets.commit("g", OUTSIDE, [commit(0, 5)])
        served.broker.directories[0].go_offline("broken")
        assert await served.broker.groups.delete("g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await committed(served) == {("t", 0): 5}


async def test_a_group_with_more_offsets_than_a_batch_takes_is_deleted(tmp_path: Path) -> None:
    topic = "t" * 249
    async with serving_broker(tmp_path) as served:
        for start in range(0, 5000, 1000):
            records = [commit(n, 5, topic=topic) for n in range(start, start + 1000)]
            await served.broker.offsets.commit("g", OUTSIDE, records)
        assert await served.broker.groups.delete("g") == ErrorCode.NONE
        assert await committed(served) == {}
