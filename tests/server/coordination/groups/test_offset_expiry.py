"""Offsets that nobody needs go: expired ones, and those of deleted topics."""

from __future__ import annotations

import asyncio
from pathlib import Path

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.offset_checks import OUTSIDE
from tests.harness.offsets_world import commit, committed, until_appended
from tests.harness.served_broker import serving_broker


async def test_expired_offsets_go_and_so_does_a_group_of_which_nothing_is_left(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, offsets_retention_minutes="1") as served:
        offsets = served.broker.offsets
        now_ms = served.broker.clock.now_ms()
        old, young = commit(0, 5, commit_timestamp=7), commit(1, 6, commit_timestamp=now_ms)
        await offsets.commit("g", OUTSIDE, [old, young])
        await offsets.commit("h", OUTSIDE, [commit(0, 5, group="h", commit_timestamp=7)])
        await offsets.expiry.expire()
        assert await committed(served) == {("t", 1): 6}
        assert [entry.group.group_id for entry in served.broker.groups.table.entries()] == ["g"]

    async with serving_broker(tmp_path) as served:
        assert await committed(served) == {("t", 1): 6}
        assert not isinstance(served.broker.groups.table.find("h"), GroupEntry)


async def test_offsets_of_a_deleted_topic_are_forgotten(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.broker.offsets.commit("g", OUTSIDE, [commit(0, 5), commit(0, 6, topic="u")])
        await served.broker.offsets.expiry.topics_deleted({"t"})
        assert await committed(served) == {("u", 0): 6}


async def test_what_is_being_committed_for_a_topic_goes_with_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        offsets = served.broker.offsets
        await served.broker.groups.topic.ensure()
        committing = asyncio.create_task(offsets.commit("g", OUTSIDE, [commit(0, 5)]))
        await until_appended(served)
        await offsets.expiry.topics_deleted({"t"})
        assert await committing == ErrorCode.NONE
        assert await committed(served) == {}


async def test_offsets_that_are_still_being_read_go_with_their_topic_too(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.broker.offsets.commit("g", OUTSIDE, [commit(0, 5)])

    async with serving_broker(tmp_path) as served:
        await served.broker.offsets.expiry.topics_deleted({"t"})
        assert await committed(served) == {}


async def test_more_offsets_than_a_batch_takes_are_forgotten(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        for start in (0, 1000, 2000):
            records = [commit(n, 5) for n in range(start, start + 1000)]
            await served.broker.offsets.commit("g", OUTSIDE, records)
        await served.broker.offsets.expiry.topics_deleted({"t"})
        assert await committed(served) == {}
