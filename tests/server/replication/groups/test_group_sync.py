"""Committed offsets of a source's groups go along to the broker that mirrors it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.client.access import Access
from server.coordination.groups.committed_offsets import CommittedOffsets
from server.replication import link as link_module
from server.replication.groups import group_sync
from server.replication.groups.group_offsets import Commit, GroupRefused
from server.replication.groups.group_round import GroupRound
from server.replication.groups.group_sync import GroupSync
from server.replication.groups.local_groups import LocalGroups
from server.replication.state_table import MirrorState
from storage.formats.topic_partition import TopicPartition
from tests.harness.group_requests import AT_ONCE, stabilize
from tests.harness.log_builder import batch_of
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.server.replication.test_mirroring import link, status, two_brokers, until, until_equal

GROUPS = {"groups": ["app.*"]}
OFFSETS = st.tuples(st.integers(0, 15), st.integers(0, 15))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the source often."""
    monkeypatch.setattr(link_module, "REFRESH_SECONDS", 0.1)
    monkeypatch.setattr(link_module, "SLOTS_SECONDS", 0.02)
    monkeypatch.setattr(group_sync, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(group_sync, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(group_sync, "REST_SHARE", 0)


async def commit(
    served: ServedBroker, group: str, offset: int, *, topic: str = "t", **settings: Any
) -> None:
    """Commit as a client outside of the group."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, **{"committed_metadata": "", **settings}
    )
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
    request = OffsetCommitRequest(group_id=group, topics=topics)
    answer = await served.call(request, 9, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def committed(served: ServedBroker, group: str, topic: str = "t") -> int | None:
    """Returns the offset that a group has committed."""
    found = served.broker.offsets.fetch(group)
    if not isinstance(found, CommittedOffsets) or (commit := found.get(topic, 0)) is None:
        return None
    return commit.offset


async def rounds(target: ServedBroker, count: int = 2) -> None:
    """Wait until so many rounds have ended whose requests began after this call."""
    seen = set[int]()

    def is_over() -> bool:
        (running,) = target.broker.replication._links.values()
        seen.add(id(running._groups._last))
        kept.append(running._groups._last)
        return len(seen) > count

    kept: list[object] = []
    await until(is_over, lambda: status(target))


def groups(target: ServedBroker) -> dict[str, Any]:
    found: dict[str, Any] = status(target)["group_offsets"]
    return found


async def until_committed(target: ServedBroker, group: str, offset: int) -> None:
    await until(lambda: committed(target, group) == offset, lambda: status(target))


async def test_offsets_go_along_with_metadata_and_epoch(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")] * 7))
        await commit(source, "app", 5, committed_metadata="five", committed_leader_epoch=0)
        await commit(source, "other", 5)
        await link(target, source, **GROUPS)
        await until_committed(target, "app", 5)

        offsets = target.broker.offsets.fetch("app")
        assert isinstance(offsets, CommittedOffsets)
        found = offsets.get("t", 0)
        assert found is not None
        assert (found.metadata, found.leader_epoch) == ("five", 0)
        await commit(source, "app", 3)
        await until_committed(target, "app", 3)
        assert committed(target, "other") is None
        assert groups(target)["groups"] == 1
        assert groups(target)["synced_ms"] is not None
        assert groups(target)["problems"] == {}


async def test_groups_of_links_and_topics_that_are_no_mirrors_stay(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        for name in ("t", "u"):
            await source.create(name)
        await target.create("u")
        await commit(source, "app", 0, topic="u")
        await commit(source, "app", 0)
        await link(target, source, groups=[".*"], topics=["t", "u"])
        await until_committed(target, "app", 0)
        await rounds(target)
        assert committed(target, "app", "u") is None, "u here is another topic"
        assert committed(target, "__mirror.dr") is None


async def test_a_commit_waits_for_its_records(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")] * 4))
        await link(target, source, **GROUPS)
        await until_equal(source, target)
        await commit(source, "app", 4)
        await until_committed(target, "app", 4)
        await commit(source, "app", 9)
        await until(lambda: groups(target)["waiting"] == 1, lambda: status(target))
        assert committed(target, "app") == 4
        await source.produce("t", batch_of([(b"k", b"v")] * 5))
        await until_committed(target, "app", 9)
        await until(lambda: groups(target)["waiting"] == 0, lambda: status(target))


async def test_a_group_with_members_here_is_left_alone(tmp_path: Path) -> None:
    async with (
        serving_broker(tmp_path / "source") as source,
        serving_broker(tmp_path / "target", **AT_ONCE) as target,
    ):
        await source.create("t")
        await source.produce("t")
        await stabilize(target, "app")
        await commit(source, "app", 1)
        await commit(source, "app-2", 1)
        await link(target, source, **GROUPS)
        await until_committed(target, "app-2", 1)
        await until(lambda: groups(target)["with_members"] == 1, lambda: status(target))
        assert committed(target, "app") is None
        assert groups(target)["problems"] == {}


async def test_one_group_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = LocalGroups.commit

    async def fail_for_one(self: LocalGroups, group: str, commits: Any) -> None:
        if group == "app-1":
            raise GroupRefused("the disk is full")
        await write(self, group, commits)

    monkeypatch.setattr(LocalGroups, "commit", fail_for_one)
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t")
        for number in range(3):
            await commit(source, f"app-{number}", 1)
        await link(target, source, **GROUPS)
        for group in ("app-0", "app-2"):
            await until_committed(target, group, 1)
        refused = {"app-1": "the disk is full"}
        await until(lambda: groups(target)["problems"] == refused, lambda: status(target))
        assert groups(target)["groups"] == 3


async def test_a_promotion_takes_the_last_commits_along_and_none_after_it(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")] * 7))
        await link(target, source, **GROUPS)
        await until_equal(source, target)
        await commit(source, "app", 6)
        assert await target.broker.replication.promote("t", is_forced=False) == []
        assert committed(target, "app") == 6

        await commit(target, "app", 7)
        await commit(source, "app", 2)
        await rounds(target)
        assert committed(target, "app") == 7


async def test_a_promotion_lets_groups_continue_from_its_end_if_their_records_are_not_here(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")] * 4))
        await link(target, source, **GROUPS)
        await until_equal(source, target)
        await commit(source, "app", 9)
        lowered = await target.broker.replication.promote("t", is_forced=True)
        assert committed(target, "app") == 4
        assert lowered == [
            "group app has committed offset 9 of t-0 at the source, and continues here from 4"
        ]


async def test_what_waits_is_known_when_the_source_is_gone(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "target") as target:
        async with serving_broker(tmp_path / "source") as source:
            await source.create("t")
            await source.produce("t", batch_of([(b"k", b"v")] * 4))
            await link(target, source, **GROUPS)
            await until_equal(source, target)
            await commit(source, "app", 9)
            await until(lambda: groups(target)["waiting"] == 1, lambda: status(target))
        await until(lambda: bool(groups(target)["problems"]), lambda: status(target))
        assert groups(target)["waiting"] == 1
        told = await target.broker.replication.promote("t", is_forced=True)
        assert committed(target, "app") == 4
        assert "continues here from 4" in told[-1]


async def test_groups_are_changed_while_the_link_runs_and_survive_a_restart(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path / "source") as source:
        await source.create("t")
        await source.produce("t")
        await commit(source, "app", 1)
        async with serving_broker(tmp_path / "target") as target:
            await link(target, source)
            await until_equal(source, target)
            assert status(target)["group_offsets"] is None
            await target.broker.replication.alter("dr", '{"groups": ["a.*"]}')
            await until_committed(target, "app", 1)
        await commit(source, "app", 0)
        async with serving_broker(tmp_path / "target") as target:
            await until_committed(target, "app", 0)


async def test_a_paused_link_takes_no_offsets_along(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t")
        await link(target, source, **GROUPS)
        await until_equal(source, target)
        (running,) = target.broker.replication._links.values()
        assert running._group_filter() is not None
        await target.broker.replication.pause("dr", is_paused=True)
        assert running._group_filter() is None


MIRROR: Any = SimpleNamespace(
    state=MirrorState.COPYING, log=SimpleNamespace(high_watermark=Offset(10))
)
"""A partition whose synced end is 10."""


class Here:
    """Groups of this broker; a commit takes some turns of the loop before and after it is written."""

    def __init__(self, turns: Iterator[int]) -> None:
        self.turns = turns
        self.promoted: set[str] = set()
        self.offsets: dict[TopicPartition, Commit] = {}

    def committed(self, group: str) -> Callable[[TopicPartition], Commit | None]:
        return self.offsets.get

    async def commit(self, group: str, commits: Mapping[TopicPartition, Commit]) -> None:
        await self.wait()
        assert not self.promoted & {each.topic for each in commits}, "written after the promotion"
        self.offsets.update(commits)
        await self.wait()

    async def wait(self) -> None:
        for _ in range(next(self.turns)):
            await asyncio.sleep(0)


@given(turns=st.lists(st.integers(0, 4), min_size=1, max_size=20), commits=st.lists(OFFSETS))
async def test_no_write_of_a_link_follows_a_promotion_that_meets_a_round(
    turns: list[int], commits: list[tuple[int, int]]
) -> None:
    here = Here(itertools.cycle(turns))
    partitions = [TopicPartition("t", 0), TopicPartition("u", 0)]
    theirs = dict.fromkeys(partitions, Commit(Offset(0), Epoch(0), ""))
    mirrors = dict.fromkeys(partitions, MIRROR)
    sync = GroupSync(here, Access(), brokers=lambda: (), mirror=mirrors.get, now_ms=lambda: 0)
    found = GroupRound()

    async def follow() -> None:
        for each in commits:
            for partition, offset in zip(partitions, each, strict=True):
                theirs[partition] = Commit(Offset(offset), Epoch(0), "")
            await here.wait()
            await sync._take("app", dict(theirs), found)

    async def promote() -> None:
        await here.wait()
        mirrors.pop(partitions[0])
        await sync.settle("t", {partitions[0]: Offset(10)})
        here.promoted.add("t")

    await asyncio.gather(follow(), promote())
    await sync._take("app", dict(theirs), found)
    last = theirs[partitions[1]]
    assert last.offset > 10 or here.offsets[partitions[1]] == last
    assert all(commit.offset <= 10 for commit in here.offsets.values())


async def test_a_promotion_knows_what_its_unfinished_last_look_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, partition = Here(itertools.repeat(0)), TopicPartition("t", 0)
    sync = GroupSync(here, Access(), brokers=lambda: (), mirror=lambda _: MIRROR, now_ms=lambda: 0)
    theirs = {"moved back": 12, "not seen again": 13}
    seen = list(theirs)

    async def look(_follows: object, found: GroupRound) -> bool:
        for group in seen:
            assert found.begin(group)
            commits = {partition: Commit(Offset(theirs[group]), Epoch(0), "")}
            await sync._take(group, commits, found)
        if len(seen) == 1:
            await asyncio.Event().wait()
        return True

    monkeypatch.setattr(GroupSync, "_sync_all", lambda _, *given: look(*given))
    monkeypatch.setattr(group_sync, "LAST_ROUND_SECONDS_MAX", 0.01)
    await sync.sync(lambda _: True)
    assert sync.facts().waiting == 2
    seen.pop()
    theirs["moved back"] = 3

    async with sync.last_round(lambda _: True):
        told = await sync.settle("t", {partition: Offset(10)})

    assert here.offsets[partition].offset == 10
    assert [each.split(" has ")[0] for each in told] == ["group not seen again"]


def test_commits_are_written_in_parts_of_a_bounded_size() -> None:
    commits = {
        TopicPartition("t", number): Commit(Offset(0), Epoch(0), "m" * length)
        for number, length in enumerate([0] * 2500 + [200_000, 100_000, 300_000, 1])
    }

    parts = list(group_sync._parts(commits))

    assert [len(part) for part in parts] == [1000, 1000, 501, 1, 1, 1]
    assert {each: commit for part in parts for each, commit in part.items()} == commits
