"""Groups of the consumer protocol over a disk: answers wait until they are durable; protocols change."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import Group
from server.coordination.groups.committed_offsets import OffsetExpiry
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.events import Beat, Join, Leave, MemberProtocol
from server.coordination.groups.group_entry import AnyGroup
from server.coordination.groups.offset_checks import Claim, offset_expiry
from server.coordination.groups.outcome import HeartbeatAnswer
from server.runtime.turns import Pace, Turns
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.group_requests import AT_ONCE
from tests.harness.offsets_world import commit
from tests.harness.served_broker import ServedBroker, serving_broker, serving_broker_on

JOIN = Beat(
    member_id="m", member_epoch=0, rebalance_timeout_ms=10_000, topic_names=("t",), owned={}
)
CLASSIC_JOIN = Join(
    member_id="",
    new_member_id="c",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=(MemberProtocol("range", b""),),
)


async def beaten(served: ServedBroker, beat: Beat, group_id: str = "g") -> HeartbeatAnswer:
    pace = Pace(served.broker.turns)
    return await (await served.broker.consumer_groups.heartbeat(group_id, beat, pace))


def group_of(served: ServedBroker, group_id: str = "g") -> AnyGroup:
    group = served.broker.groups.describe(group_id)
    assert isinstance(group, AnyGroup), group
    return group


def at(epoch: int, member_id: str = "m") -> Beat:
    return Beat(member_id=member_id, member_epoch=epoch)


async def test_members_go_on_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.create("t", 2)
        epoch = (await beaten(served, JOIN)).member_epoch

    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.broker.groups.table.loads.loaded()
        answer = await beaten(served, at(epoch))
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)
        assert group_of(served).state.value == "Stable"


async def test_what_cannot_be_written_is_not_told_and_the_group_is_as_it_was(
    tmp_path: Path,
) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path, **AT_ONCE) as served:
        await served.create("t", 2)
        epoch = (await beaten(served, JOIN)).member_epoch
        files.faults.fail("append to", errno.ENOSPC, path="__consumer_offsets")

        refused = await beaten(served, dataclasses.replace(JOIN, member_id="n"))

        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = group_of(served)
        assert isinstance(group, ConsumerGroup)
        assert list(group.data.members) == ["m"]
        assert (await beaten(served, at(epoch))).error_code == ErrorCode.NONE


async def test_a_group_that_only_commits_takes_members_and_keeps_its_offsets(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.create("t")
        await served.broker.offsets.commit("g", Claim(), [commit(0, 7, group="g")])

        assert (await beaten(served, JOIN)).error_code == ErrorCode.NONE

        offsets = served.broker.offsets.fetch("g")
        assert not isinstance(offsets, ErrorCode)
        assert len(offsets) == 1


DISABLED = {**AT_ONCE, "group_consumer_migration_policy": "disabled"}


async def test_an_empty_group_changes_its_protocol_and_changes_back(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **DISABLED) as served:
        groups = served.broker.groups
        assert (await (await groups.join("g", CLASSIC_JOIN))).error_code == ErrorCode.NONE
        busy = await beaten(served, JOIN)
        assert busy.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "because online upgrade is disabled" in (busy.message or "")
        left = await groups.leave("g", [Leave(member_id="c")], Pace(Turns()))
        assert not isinstance(left, ErrorCode)
        await left

        assert (await beaten(served, JOIN)).error_code == ErrorCode.NONE
        await beaten(served, at(-1))
        assert (await (await groups.join("g", CLASSIC_JOIN))).error_code == ErrorCode.NONE
        assert isinstance(group_of(served), Group)

    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.broker.groups.table.loads.loaded()
        assert served.broker.groups.groups() == [], "its tombstones are written"


async def test_requests_of_the_classic_protocol_find_no_members(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await beaten(served, JOIN)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert served.broker.groups.heartbeat("g", "m", None, 2) == unknown


async def test_a_group_is_deleted_once_it_is_empty(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await beaten(served, JOIN)
        assert await served.broker.groups.delete("g") == ErrorCode.NON_EMPTY_GROUP
        await beaten(served, at(-1))
        assert await served.broker.groups.delete("g") == ErrorCode.NONE
        assert served.broker.groups.describe("g") is None


@pytest.mark.parametrize(
    ("member_id", "epoch", "knows_epochs", "code"),
    [
        ("m", 2, True, ErrorCode.NONE),
        ("m", 3, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 2, False, ErrorCode.UNSUPPORTED_VERSION),
        ("n", 2, True, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_members_commit_at_their_epoch(
    tmp_path: Path, member_id: str, epoch: int, knows_epochs: bool, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.create("t")
        await beaten(served, JOIN)
        claim = Claim(member_id=member_id, generation=epoch, knows_epochs=knows_epochs)

        assert await served.broker.offsets.commit("g", claim, [commit(group="g")]) == code
        if code is not ErrorCode.UNSUPPORTED_VERSION and member_id:
            fetched = served.broker.offsets.fetch("g", claim)
            assert (fetched if isinstance(fetched, ErrorCode) else ErrorCode.NONE) == code


async def test_a_commit_at_an_older_epoch_counts_for_what_the_member_has_had_since(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.create("t")
        await beaten(served, JOIN)
        await served.broker.topics.add_partitions("t", 2)
        assert (await beaten(served, at(2))).member_epoch == 3
        old = Claim(member_id="m", generation=2)

        offsets = served.broker.offsets
        assert await offsets.commit("g", old, [commit(0, group="g")]) == ErrorCode.NONE
        refused = await offsets.commit("g", old, [commit(1, group="g")])
        assert refused == ErrorCode.STALE_MEMBER_EPOCH


async def test_offsets_expire_but_for_topics_that_a_member_is_subscribed_to(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await beaten(served, JOIN)
        assert offset_expiry(group_of(served)) == OffsetExpiry(subscribed=frozenset({"t"}))
        await beaten(served, at(-1))
        assert offset_expiry(group_of(served)) == OffsetExpiry()


async def test_offsets_of_subscribed_topics_are_not_deleted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.create("t")
        await beaten(served, JOIN)
        outcome = await served.broker.offsets.delete("g", [("t", 0), ("other", 0)])
        assert outcome == {
            ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("other", 0): ErrorCode.NONE,
        }
