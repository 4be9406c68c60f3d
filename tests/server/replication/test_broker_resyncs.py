"""A partition that has failed is copied once more beside its log, between two brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.wire.numbers import Offset
from server.replication import link as link_module
from server.replication.link import Link
from server.replication.link_spec import BadLink
from server.replication.mirror import Mirror
from server.replication.replication import LinkRefused, UnknownLink
from server.replication.slots import commit_slots
from server.replication.writer import MirrorWriter
from storage.files.local_files import LocalFileSystem
from storage.files.paths import aside_directory, copy_directory
from storage.log.log import PartitionLog
from tests.harness.log_builder import batch_of
from tests.harness.log_home import read_all
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.server.replication.test_mirroring import (
    LINK,
    create_again,
    in_state,
    link,
    soon,
    states,
    status,
    two_brokers,
    until,
    until_equal,
    until_slot,
)

__all__ = ["soon"]  # A fixture that every test here uses, too.


async def lose_a_tombstone(source: ServedBroker, target: ServedBroker, **settings: Any) -> None:
    """Let a mirror fail because its slot at the source no longer holds."""
    await source.create("t", cleanup_policy="compact")
    await source.produce("t", batch_of([(b"a", b"1"), (b"b", b"1")]))
    await link(target, source, **settings)
    await until_equal(source, target)
    await target.broker.replication.pause(LINK, is_paused=True)
    await source.produce("t", batch_of([(b"a", None)]))
    await source.broker.topics.alter("t", lambda old, _: {**old, "compaction.hold.max.ms": "1"})
    await until_slot(source, 2)
    while not source.broker.groups.holds.invalidated_total:
        # A slot that was committed in this millisecond has not stalled yet.
        await source.broker.offsets.expiry.expire()
    await source.broker.topics.alter("t", lambda _, __: {"cleanup.policy": "compact"})
    await target.broker.replication.pause(LINK, is_paused=False)


async def resync(target: ServedBroker, **chosen: Any) -> list[str]:
    """Ask for a resync. Returns the partitions that have begun."""
    topic, partition = chosen.get("topic"), chosen.get("partition")
    puts_aside = chosen.get("puts_aside", False)
    begun, _ = await target.broker.replication.resync(LINK, topic, partition, puts_aside=puts_aside)
    return [str(each) for each in begun]


async def aside(target: ServedBroker) -> list[dict[str, Any]]:
    shown = await target.broker.replication.shown_whole(LINK)
    found: list[dict[str, Any]] = shown["partitions"][0]["put_aside"]
    return found


def has_copy(log: PartitionLog) -> bool:
    return Path(copy_directory(log.directory)).exists()


def hold_back_the_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        """The new copy stays beside the log."""

    monkeypatch.setattr(MirrorWriter, "swap", nothing)


async def filled(target: ServedBroker) -> None:
    """Wait until a new copy has all that the old log has."""

    def is_filled() -> bool:
        found = status(target)["partitions"][0]["resync"]
        return found is not None and found["copied"] == found["goal"] > 0

    await until(is_filled, lambda: status(target))


async def test_a_mirror_that_lacks_tombstones_is_copied_once_more(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await lose_a_tombstone(source, target)
        assert "kompakt replica resync" in (await in_state(target, "failed"))["reason"]
        before, ours = read_all(target.log("t")), target.log("t")

        assert await resync(target) == ["t-0"]
        await in_state(target, "copying")
        await until_equal(source, target)

        assert target.log("t") is ours, "clients, the cleaner and the group commit have it still"
        assert len(read_all(ours)) > len(before)
        (kept,) = await aside(target)
        assert kept["directory"] == f"{ours.directory}.aside.2"
        assert kept["size_bytes"] > 0
        await source.produce("t", batch_of([(b"later", b"1")]))
        await until_equal(source, target)
        totals = target.broker.replication.facts()[LINK]
        assert (totals.resyncs_started_total, totals.resyncs_completed_total) == (1, 1)


async def test_nothing_is_put_aside_that_cleaning_here_would_have_removed(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await lose_a_tombstone(source, target, compaction="on")
        await in_state(target, "failed")
        await resync(target, topic="t", partition=0)
        await in_state(target, "copying")
        await until_equal(source, target)
        assert await aside(target) == []


async def test_an_old_log_with_records_that_the_source_lost_is_put_aside_on_request(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        for _ in range(3):
            await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source)
        before = await until_equal(source, target)
        await target.broker.replication.pause(LINK, is_paused=True)
        await source.produce("t", batch_of([(b"k", b"w")] * 3))
        source.log("t").delete_records(Offset(5))
        await target.broker.replication.pause(LINK, is_paused=False)
        assert "--put-aside" in (await in_state(target, "failed"))["reason"]

        with pytest.raises(LinkRefused, match=r"t-0: .*--put-aside"):
            await resync(target)
        assert read_all(target.log("t")) == before
        await resync(target, puts_aside=True)
        await in_state(target, "copying")
        await until_equal(source, target)
        assert target.log("t").log_start_offset == 5
        assert len(await aside(target)) == 1


async def test_a_resync_that_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source)
        await until_equal(source, target)
        with pytest.raises(LinkRefused, match="no partition of link dr has failed"):
            await resync(target)
        with pytest.raises(LinkRefused, match="t-0: it is copying"):
            await resync(target, topic="t", partition=0)
        with pytest.raises(UnknownLink, match="t-7 is no mirror of link dr"):
            await resync(target, topic="t", partition=7)
        with pytest.raises(UnknownLink, match="no link other"):
            await target.broker.replication.resync("other", None, None, puts_aside=False)
        await create_again(source, target)
        await in_state(target, "failed")
        with pytest.raises(LinkRefused, match=r"t-0: .*created again.*promote the mirror"):
            await resync(target, puts_aside=True)
        await target.broker.replication.pause(LINK, is_paused=True)
        with pytest.raises(LinkRefused, match="is paused"):
            await resync(target)


async def test_during_a_resync_only_force_promotes_and_that_is_the_old_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_back_the_swap(monkeypatch)
    async with two_brokers(tmp_path) as (source, target):
        await lose_a_tombstone(source, target)
        await in_state(target, "failed")
        ours = target.log("t")
        before = read_all(ours)
        await resync(target)
        await filled(target)
        assert read_all(ours) == before, "readers stay on the old log"

        with pytest.raises(LinkRefused) as refused:
            await target.broker.replication.promote("t", is_forced=False)
        assert "a resync is under way" in refused.value.missing[0]
        lacking = await target.broker.replication.promote("t", is_forced=True)
        assert "a resync is under way" in lacking[0]
        assert read_all(ours) == before
        assert not has_copy(ours)


async def test_a_paused_resync_keeps_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await lose_a_tombstone(source, target)
        await in_state(target, "failed")
        with monkeypatch.context() as held:
            hold_back_the_swap(held)
            await resync(target)
            await filled(target)
            await target.broker.replication.pause(LINK, is_paused=True)
            await in_state(target, "paused")
        assert status(target)["partitions"][0]["resync"]["copied"] > 0
        await target.broker.replication.pause(LINK, is_paused=False)
        await in_state(target, "copying")
        await until_equal(source, target)
        assert target.broker.replication.facts()[LINK].resyncs_started_total == 1


async def test_a_resync_begins_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path / "source") as source:
        with monkeypatch.context() as held:
            hold_back_the_swap(held)
            async with serving_broker(tmp_path / "target") as target:
                await lose_a_tombstone(source, target)
                await in_state(target, "failed")
                await resync(target)
                await filled(target)
                slot = await committed_slot(source)
                assert slot["resync"]["cause"] == "MISSED_TOMBSTONES"
                assert slot["resync"]["puts_aside"] is False
                assert slot["resync"]["safe_ms"] is not None, "it is the copy's"
                assert slot["safe_ms"] is None, "it is that of the old log until the swap"
        async with serving_broker(tmp_path / "target") as target:
            await until_equal(source, target)
            await in_state(target, "copying")
            assert not has_copy(target.log("t"))


async def test_a_restart_right_after_the_swap_repeats_no_resync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot at the source, which is committed once a second, still remembers the resync."""
    async with serving_broker(tmp_path / "source") as source:
        with monkeypatch.context() as held:
            async with serving_broker(tmp_path / "target") as target:
                await lose_a_tombstone(source, target)
                await in_state(target, "failed")

                async def commit_until_the_swap(*what: Any) -> None:
                    if not target.broker.replication.facts()[LINK].resyncs_completed_total:
                        await commit_slots(*what)

                held.setattr(f"{Link.__module__}.commit_slots", commit_until_the_swap)
                await resync(target)
                await until_equal(source, target)
                copy_id = target.log("t").copy_id
                assert copy_id is not None
                slot = await committed_slot(source)
                assert slot["resync"]["id"] == str(copy_id)
        async with serving_broker(tmp_path / "target") as target:
            await source.produce("t", batch_of([(b"later", b"1")]))
            await until_equal(source, target)
            await in_state(target, "copying")
            assert target.broker.replication.facts()[LINK].resyncs_started_total == 0
            assert target.log("t").copy_id == copy_id
            assert len(await aside(target)) == 1
        assert (await committed_slot(source)).get("resync") is None


async def committed_slot(source: ServedBroker) -> dict[str, Any]:
    request = OffsetFetchRequest(group_id="__mirror.dr", topics=None)
    answer = await source.call(request, 7, OffsetFetchResponse)
    ((found,),) = [each.partitions for each in answer.topics]
    slot: dict[str, Any] = json.loads(found.metadata or "")
    return slot


async def test_a_resync_whose_topic_is_created_again_ends_and_the_old_log_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_back_the_swap(monkeypatch)
    async with two_brokers(tmp_path) as (source, target):
        await lose_a_tombstone(source, target)
        await in_state(target, "failed")
        before = read_all(target.log("t"))
        await resync(target)
        await filled(target)
        await create_again(source, target, cleanup_policy="compact")
        assert "created again" in (await in_state(target, "failed"))["reason"]
        assert read_all(target.log("t")) == before
        await until(lambda: not has_copy(target.log("t")))


async def test_a_link_resyncs_by_itself_only_if_it_says_so_and_nothing_is_put_aside(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await lose_a_tombstone(source, target)
        await in_state(target, "failed")
        left = aside_directory(target.log("t").directory, 7)
        LocalFileSystem().make_directory(left)
        await target.broker.replication.alter(LINK, '{"resync": "auto"}')
        await until(lambda: status(target)["resync"] == "auto")
        assert states(target) == ["failed"]
        LocalFileSystem().remove_tree(left)
        await until_equal(source, target)
        with pytest.raises(BadLink, match="not one of manual, auto"):
            await target.broker.replication.alter(LINK, '{"resync": "later"}')


async def test_a_link_that_resyncs_by_itself_begins_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        monkeypatch.setattr(link_module, "REFRESH_SECONDS", 3600.0)

        await lose_a_tombstone(source, target, resync="auto")

        facts = target.broker.replication.facts
        await until(lambda: facts()[LINK].resyncs_completed_total == 1, lambda: status(target))
        await until_equal(source, target)


async def test_an_answer_of_the_old_place_does_not_reach_the_new_copy(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await lose_a_tombstone(source, target)
        await in_state(target, "failed")
        (running,) = target.broker.replication._links.values()
        mirror: Mirror = running.mirrors_of("t")[0]
        asked = mirror.target
        assert asked is not None
        await resync(target)
        assert not mirror.asks_for(asked)
        await until_equal(source, target)
        assert not mirror.asks_for(asked), "the log has other records now"
