"""Comparisons over the network: what a job says of equal and of different mirrors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocol.wire.numbers import Offset
from server.replication.findings import Verdict as Failed
from server.replication.mirror import Mirror
from server.replication.replication import LinkRefused, UnknownLink
from server.replication.state_table import Guard
from server.replication.verify import verifications
from server.replication.verify.job import VerifyJob
from server.replication.verify.sides import MirrorSide, Piece
from server.replication.verify.verdict import Verdict
from tests.harness.log_builder import batch_of, run_of
from tests.harness.served_broker import ServedBroker
from tests.server.replication.test_broker_resyncs import filled, hold_back_the_swap
from tests.server.replication.test_mirroring import (
    LINK,
    SECONDS_MAX,
    link,
    mirror_log,
    soon,
    states,
    status,
    two_brokers,
    until,
    until_equal,
)

__all__ = ["soon"]


async def verified(target: ServedBroker, topic: str = "t", wait: float = 5.0) -> VerifyJob:
    """Returns a job that has ended."""
    job = await target.broker.verifications.begin(topic, wait_seconds=wait)
    await until(lambda: job.is_over, job.as_json)
    return job


def log_size(source: ServedBroker, partition: int) -> int:
    """Returns the bytes of a log's segments."""
    return sum(segment.size for segment in source.log("t", partition).segments)


async def test_equal_mirrors_of_compacted_and_other_topics(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", partitions=2, cleanup_policy="compact")
        await source.create("plain")
        for number in range(20):
            await source.produce("t", batch_of([(b"k%d" % number, b"1")]))
            await source.produce("plain", batch_of([(None, b"1")]))
        await link(target, source, topics=["t", "plain"])
        await until_equal(source, target)
        await until_equal(source, target, topic="plain")
        keyed, plain = await verified(target), await verified(target, "plain")
        size = sum(log_size(source, number) for number in range(2))

    assert (keyed.verdict, plain.verdict) == (Verdict.EQUAL, Verdict.EQUAL)
    first, empty = [each.as_json() for each in keyed.parts]
    assert (first["compares"], first["source"]["count"], first["end_offset"]) == (
        "last values",
        20,
        20,
    )
    assert (empty["verdict"], empty["source"]["count"]) == ("equal", 0)
    assert plain.parts[0].as_json()["compares"] == "all records"
    assert keyed.cost_bytes == size


async def test_a_difference_has_the_key_and_where_it_is(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"a", b"1")]))
        await link(target, source)
        await until_equal(source, target)
        ours = mirror_log(target)
        assert ours is not None
        await target.broker.replication.pause("dr", is_paused=True)
        await source.produce("t", batch_of([(b"b", b"1")]))
        other = batch_of([(b"b", b"2")], base_offset=1, leader_epoch=ours.epochs.latest)
        ours.appender.append_as_follower(run_of(other), now_ms=0)
        target.broker.group_commit.appended(ours)
        job = await verified(target)

    assert job.verdict is Verdict.DIFFERENT
    (part,) = [each.as_json() for each in job.parts]
    assert part["differences"] == {
        "count": 1,
        "first_offset": 1,
        "last_offset": 1,
        "listed": [
            {
                "kind": "other_content",
                "key": "b",
                "key_hex": "62",
                "source_offset": 1,
                "mirror_offset": 1,
            }
        ],
    }


async def test_a_mirror_that_is_behind_is_unknown_and_says_what_to_do(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"a", b"1")]))
        await link(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause("dr", is_paused=True)
        await source.produce("t", batch_of([(b"b", b"1")]))
        await source.produce("t", batch_of([(b"b", b"2")]))
        log = source.log("t")
        await until(lambda: log.high_watermark == Offset(3))
        job = await verified(target, wait=0.0)

    assert job.verdict is Verdict.UNKNOWN
    assert "kompakt replica status" in job.parts[0].as_json()["reason"]


async def test_a_mirror_whose_records_have_versions_is_unknown(tmp_path: Path) -> None:
    """The source's cleaner has dropped a record that lost, and the mirror has it: no difference."""
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact", compaction_strategy="timestamp")
        await source.produce("t", batch_of([(b"a", b"1")]))
        await link(target, source)
        await until_equal(source, target)
        job = await verified(target)
        assert target.log("t").config.strategy.has_versions

    assert job.verdict is Verdict.UNKNOWN
    assert "ranked by timestamp" in job.parts[0].as_json()["reason"]


async def with_a_key_too_many(
    source: ServedBroker, target: ServedBroker, **settings: Any
) -> Mirror:
    """Let the mirror have a key that the source's cleaner has removed with its tombstone."""
    await source.create("t", cleanup_policy="compact")
    await source.produce("t", batch_of([(b"kept", b"1")]))
    await link(target, source, **settings)
    await until_equal(source, target)
    ours, theirs = target.log("t"), source.log("t")
    await target.broker.replication.pause(LINK, is_paused=True)
    theirs.appender.advance_end(Offset(2))
    await source.produce("t", batch_of([(b"last", b"1")]))
    epoch = ours.epochs.latest
    deleted = batch_of([(b"deleted", b"1")], base_offset=1, leader_epoch=epoch)
    last = batch_of([(b"last", b"1")], base_offset=2, leader_epoch=epoch)
    ours.appender.append_as_follower(run_of(deleted, last), now_ms=0)
    target.broker.group_commit.appended(ours)
    await target.broker.replication.pause(LINK, is_paused=False)
    await until(lambda: states(target) == ["copying"], lambda: status(target))
    (mirror,) = target.broker.replication._links[LINK].mirrors_of("t")
    return mirror


class Between:
    """Holds the first read of the mirror's log back when it has its answer."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.has_read, self.may_continue = asyncio.Event(), asyncio.Event()
        read = MirrorSide.read

        async def read_and_wait(side: MirrorSide, offset: Offset) -> Piece | None:
            piece = await read(side, offset)
            self.has_read.set()
            await self.may_continue.wait()
            return piece

        patch.setattr(MirrorSide, "read", read_and_wait)


async def test_a_swap_in_the_middle_makes_no_false_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        mirror = await with_a_key_too_many(source, target)
        assert (await verified(target)).verdict is Verdict.DIFFERENT
        between = Between(monkeypatch)
        job = await target.broker.verifications.begin("t", wait_seconds=5)
        await between.has_read.wait()
        mirror.answered(Failed(guard=Guard.MISSED_TOMBSTONES, reason="it is tested"))
        await target.broker.replication.resync(LINK, None, None, puts_aside=False)
        await until(lambda: mirror.resyncs_completed == 1, lambda: status(target))
        between.may_continue.set()
        await until(lambda: job.is_over, job.as_json)
        again = await verified(target)

    assert job.verdict is Verdict.UNKNOWN, "it was true of a log that is gone"
    assert "verify again" in job.parts[0].as_json()["reason"]
    assert again.verdict is Verdict.EQUAL


async def test_a_comparison_that_a_resync_does_not_interrupt_is_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the new copy is filled, after it has taken the log's place, and if that is waited for."""
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"a", b"1"), (b"b", b"1")]))
        await link(target, source)
        await until_equal(source, target)
        (mirror,) = target.broker.replication._links[LINK].mirrors_of("t")
        mirror.answered(Failed(guard=Guard.MISSED_TOMBSTONES, reason="it is tested"))
        with monkeypatch.context() as held:
            hold_back_the_swap(held)
            await target.broker.replication.resync(LINK, None, None, puts_aside=False)
            await filled(target)
            during = await verified(target)
            await source.produce("t", batch_of([(b"c", b"1")]))
            waits = await target.broker.verifications.begin("t", wait_seconds=SECONDS_MAX)
            await until(lambda: waits.parts[0].progress.phase.startswith("waiting for the mirror"))
        await until(lambda: mirror.resyncs_completed == 1, lambda: status(target))
        await until(lambda: waits.is_over, waits.as_json)
        after = await verified(target)

    assert [each.verdict for each in (during, waits, after)] == [Verdict.EQUAL] * 3


async def test_a_cut_in_the_middle_makes_no_false_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await with_a_key_too_many(source, target)
        between, ours = Between(monkeypatch), target.log("t")
        job = await target.broker.verifications.begin("t", wait_seconds=5)
        await between.has_read.wait()
        await target.broker.group_commit.rest(ours)
        await asyncio.to_thread(ours.truncate_to, Offset(1))
        target.broker.group_commit.abandon(ours)
        await until_equal(source, target)
        between.may_continue.set()
        await until(lambda: job.is_over, job.as_json)

    assert job.verdict is Verdict.UNKNOWN
    assert "verify again" in job.parts[0].as_json()["reason"]


async def test_a_topic_that_is_no_mirror_is_refused(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (_, target):
        await target.create("own")
        with pytest.raises(UnknownLink, match="own is no mirror"):
            await target.broker.verifications.begin("own", wait_seconds=1)


async def test_a_job_can_be_stopped(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"a", b"1")]))
        await link(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause("dr", is_paused=True)
        await source.produce("t", batch_of([(b"b", b"1")]))
        verifications = target.broker.verifications
        job = await verifications.begin("t", wait_seconds=3600)
        await until(lambda: job.parts[0].progress.phase.startswith("waiting for the mirror"))
        verifications.cancel(verifications.get("t", job.id))
        assert job.task is not None
        await asyncio.wait([job.task])

    assert job.is_over
    assert job.verdict is Verdict.UNKNOWN
    assert job.parts[0].error == "it was cancelled"


async def test_comparisons_that_begin_together_stay_within_their_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifications, "RUNNING_MAX", 2)
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t")
        await link(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause("dr", is_paused=True)
        await source.produce("t")
        begun = await asyncio.gather(
            *(target.broker.verifications.begin("t", wait_seconds=60) for _ in range(5)),
            return_exceptions=True,
        )

    jobs = [each for each in begun if isinstance(each, VerifyJob)]
    assert len(jobs) == 2
    refused = [str(each) for each in begun if isinstance(each, LinkRefused)]
    assert refused == ["2 comparisons wait already: stop some, or wait"] * 3
