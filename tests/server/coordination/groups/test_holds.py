"""Which tombstones groups hold by their committed offsets, and how a hold ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cleaner.rules.hold import NO_HOLD, Hold
from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.coordination.coordinator_topic import CoordinatorTopic, PreparedBatch
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.holds import INVALIDATED_MS, LOADING, is_named
from server.coordination.groups.loading import LoadedPartition, load_partition
from server.coordination.groups.offset_checks import OUTSIDE
from server.coordination.producer import Producer
from tests.harness.offsets_world import commit, end_transaction
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker

LINK = "__mirror.dr"
DAY_MS = 86_400_000
LONG_AGO_MS = 7
COMPACT = {"cleanup_policy": "compact"}


def slot(offset: int, *, group: str = LINK, at_ms: int | None = None, **fields: int) -> GroupRecord:
    return commit(0, offset, group=group, commit_timestamp=LONG_AGO_MS if at_ms is None else at_ms)


def hold(served: ServedBroker, topic: str = "t") -> Hold:
    return served.broker.groups.holds.hold_of(served.log(topic))


async def commits(served: ServedBroker, record: GroupRecord, group: str = LINK) -> ErrorCode:
    await served.broker.groups.table.loads.loaded()
    return await served.broker.offsets.commit(group, OUTSIDE, [record])


async def with_records(served: ServedBroker, count: int = 9, **configs: str) -> None:
    await served.create("t", 1, **{**COMPACT, **configs})
    for _ in range(count):
        await served.produce("t", batch_of(1))


def stored(served: ServedBroker, group: str = LINK) -> tuple[int, int] | None:
    """Returns offset and time of the slot."""
    entry = served.broker.groups.table.find(group)
    found = entry.offsets.get("t", 0) if isinstance(entry, GroupEntry) else None
    return None if found is None else (found.offset, found.commit_timestamp)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("__mirror.dr", True),
        ("__mirror.", True),
        ("__mirror", False),
        ("billing", True),
        ("b", False),
    ],
)
def test_a_group_is_named_by_its_name_or_by_a_prefix(group: str, expected: bool) -> None:
    assert is_named(("__mirror.*", "billing"), group) is expected


async def test_a_group_that_reads_a_view_holds_the_tombstones_of_its_topic(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served, compaction_hold_groups="billing")
        await commits(served, commit(0, 4, group="billing", topic="t.latest"), "billing")
        assert hold(served) == Hold(offset=Offset(4), by="group billing")

        await commits(served, commit(0, 3, group="billing"), "billing")
        assert hold(served) == Hold(offset=Offset(3), by="group billing")


async def test_the_least_committed_offset_of_the_named_groups_holds(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served, compaction_hold_groups="__mirror.*,billing")
        await served.broker.groups.table.loads.loaded()
        assert hold(served) == NO_HOLD

        await commits(served, slot(5))
        await commits(served, slot(3, group="billing"), "billing")
        await commits(served, slot(1, group="other"), "other")

        assert hold(served) == Hold(offset=Offset(3), by="group billing")
        await commits(served, slot(7, group="billing"), "billing")
        assert hold(served) == Hold(offset=Offset(5), by=f"group {LINK}")


async def test_other_groups_are_looked_at_only_when_the_offsets_of_a_partition_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[object]()
    named = GroupTable.named

    def noted(table: GroupTable, patterns: Sequence[str]) -> Iterator[GroupEntry]:
        asked.append(patterns)
        return named(table, patterns)

    monkeypatch.setattr(GroupTable, "named", noted)
    async with serving_broker(tmp_path) as served:
        await with_records(served, compaction_hold_groups="__mirror.*,billing")
        for offset in (5, 7, 3):
            await commits(served, slot(offset))
            assert hold(served) == hold(served) == Hold(offset=Offset(offset), by=f"group {LINK}")
        # For the topic, and for its view.
        assert len(asked) == 2

        other = "billing"
        await commits(served, slot(1, group=other), other)
        assert hold(served) == Hold(offset=Offset(1), by=f"group {other}")
        await served.broker.offsets.delete(other, [("t", 0)])
        assert hold(served) == Hold(offset=Offset(3), by=f"group {LINK}")
        assert len(asked) == 4

        await served.broker.topics.alter(
            "t", lambda old, _: {**old, "compaction.hold.groups": other}
        )
        assert hold(served) == NO_HOLD
        await commits(served, slot(2, group=other), other)
        assert hold(served) == Hold(offset=Offset(2), by=f"group {other}")


async def test_a_topic_that_names_no_group_is_never_held(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served, compaction_hold_groups="")
        await commits(served, slot(5))
        assert hold(served) == NO_HOLD


async def test_everything_is_held_while_a_group_may_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(5))

    may_load = asyncio.Event()

    async def load_later(topic: CoordinatorTopic, partition: int) -> LoadedPartition:
        await may_load.wait()
        return await load_partition(topic, partition)

    monkeypatch.setattr(f"{GroupTable.__module__}.load_partition", load_later)
    async with serving_broker(tmp_path) as served:
        assert hold(served) == LOADING
        may_load.set()
        await served.broker.groups.table.loads.loaded()
        assert hold(served) == Hold(offset=Offset(5), by=f"group {LINK}")


async def test_only_a_new_or_lowered_slot_makes_planned_passes_lose(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        log = served.log("t")
        generations = [log.generation]
        for record in (slot(5), slot(8), slot(8), slot(2)):
            await commits(served, record)
            generations.append(log.generation)
        await commits(served, slot(1, group="other"), "other")
        generations.append(log.generation)

        steps = [after - before for before, after in pairwise(generations)]
        assert steps == [1, 0, 0, 1, 0]


async def test_other_groups_to_hold_for_make_planned_passes_lose(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        generation = served.log("t").generation
        await served.broker.topics.alter("t", lambda old, _: {**old, "compaction.hold.groups": "g"})
        assert served.log("t").generation > generation


async def test_an_offset_in_a_transaction_holds_once_it_is_committed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        offsets, producer = served.broker.offsets, Producer(id=7, epoch=0)
        await served.broker.groups.table.loads.loaded()
        generation = served.log("t").generation
        outcome = await offsets.commit_in_transaction(
            LINK, OUTSIDE, producer, [slot(4)], may_write=lambda _: ErrorCode.NONE
        )
        assert (outcome, hold(served)) == (ErrorCode.NONE, NO_HOLD)

        await end_transaction(served.broker, LINK, producer, is_commit=True)

        assert hold(served).offset == 4
        assert served.log("t").generation > generation


async def test_a_commit_without_progress_keeps_the_time_of_the_last_progress(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(5, at_ms=1_000))
        await commits(served, slot(5, at_ms=2_000))
        assert stored(served) == (5, 1_000)
        await commits(served, slot(6, at_ms=3_000))
        assert stored(served) == (6, 3_000)
        await commits(served, slot(9, at_ms=4_000))
        await commits(served, slot(9, at_ms=5_000))
        assert stored(served) == (9, 5_000), "there was nothing more to read"


async def test_a_slot_without_progress_is_invalidated_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served, compaction_hold_max_ms=str(DAY_MS))
        now_ms = served.broker.clock.now_ms()
        await commits(served, slot(5, at_ms=now_ms - DAY_MS + 60_000))
        await served.broker.offsets.expiry.expire()
        assert hold(served).offset == 5

        await commits(served, slot(6, at_ms=now_ms - DAY_MS))
        with caplog.at_level(logging.WARNING):
            await served.broker.offsets.expiry.expire()

        assert hold(served) == NO_HOLD
        assert "no longer holds the tombstones of t-0: it has stayed at offset 6" in caplog.text
        assert served.broker.groups.holds.invalidated_total == 1

    async with serving_broker(tmp_path) as served:
        await served.broker.groups.table.loads.loaded()
        assert (hold(served), stored(served)) == (NO_HOLD, (6, INVALIDATED_MS))
        await served.broker.offsets.expiry.expire()
        assert served.broker.groups.holds.invalidated_total == 0


async def test_a_slot_with_nothing_more_to_read_is_never_invalidated(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(9))
        await served.broker.offsets.expiry.expire()
        assert hold(served).offset == 9


async def test_a_topic_that_is_not_compacted_invalidates_no_slot(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served, cleanup_policy="delete")
        await commits(served, slot(5))
        await served.broker.offsets.expiry.expire()
        assert stored(served) == (5, LONG_AGO_MS)


async def test_a_link_whose_slot_was_invalidated_can_only_start_over(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(5))
        await served.broker.offsets.expiry.expire()

        assert await commits(served, slot(8)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await commits(served, slot(5)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert hold(served) == NO_HOLD
        now_ms = served.broker.clock.now_ms()
        assert await commits(served, slot(0, at_ms=now_ms)) is ErrorCode.NONE
        assert hold(served).offset == 0
        assert await commits(served, slot(8, at_ms=now_ms)) is ErrorCode.NONE


async def test_an_ordinary_group_holds_again_once_it_moves(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served, compaction_hold_groups="billing")
        await commits(served, slot(5, group="billing"), "billing")
        await served.broker.offsets.expiry.expire()

        now_ms = served.broker.clock.now_ms()
        await commits(served, slot(5, group="billing", at_ms=now_ms), "billing")
        assert hold(served) == NO_HOLD
        await commits(served, slot(6, group="billing", at_ms=now_ms), "billing")
        assert hold(served).offset == 6


async def test_slots_do_not_expire_and_other_offsets_of_the_group_do(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, offsets_retention_minutes="1") as served:
        await with_records(served)
        await commits(served, slot(9))
        await commits(served, commit(0, 3, group=LINK, topic="gone", commit_timestamp=LONG_AGO_MS))
        await commits(served, slot(9, group="g"), "g")

        await served.broker.offsets.expiry.expire()

        offsets = served.broker.offsets.fetch(LINK)
        assert not isinstance(offsets, ErrorCode)
        assert offsets.places() == [("t", 0)]
        assert served.broker.groups.table.find("g") is None


async def test_a_live_links_slots_are_not_deleted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(5, at_ms=served.broker.clock.now_ms()))

        deleted = await served.broker.offsets.delete(LINK, [("t", 0)])

        assert deleted == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        assert await served.broker.groups.delete(LINK) is ErrorCode.NON_EMPTY_GROUP
        assert hold(served).offset == 5


async def test_an_operator_deletes_the_slots_of_a_link_that_is_gone(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(5))

    async with serving_broker(tmp_path) as served:
        await served.broker.groups.table.loads.loaded()
        assert await served.broker.groups.delete(LINK) is ErrorCode.NONE
        assert hold(served) == NO_HOLD


async def test_an_operator_deletes_the_slots_of_an_ordinary_group(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served, compaction_hold_groups="billing")
        await commits(served, slot(5, group="billing"), "billing")
        assert await served.broker.offsets.delete("billing", [("t", 0)]) == {
            ("t", 0): ErrorCode.NONE
        }
        assert hold(served) == NO_HOLD


class HeldAppends:
    """Lets appends to `__consumer_offsets` become durable only when the test allows it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._appended = asyncio.Event()
        self._may_be_durable = asyncio.Event()
        append = CoordinatorTopic.append_batch

        def held(topic: CoordinatorTopic, batch: PreparedBatch) -> tuple[int, Awaitable[int]]:
            first_offset, durable = append(topic, batch)
            self._appended.set()
            return first_offset, self._held(durable)

        patch.setattr(CoordinatorTopic, "append_batch", held)

    async def next_of(self, task: asyncio.Task[Any]) -> None:
        """Wait until a task appends a batch, or ends without one."""
        self._appended.clear()
        appended = asyncio.create_task(self._appended.wait())
        await asyncio.wait({task, appended}, return_when=asyncio.FIRST_COMPLETED)
        appended.cancel()

    def release(self) -> None:
        """Let everything that is appended become durable."""
        self._may_be_durable.set()

    async def _held(self, durable: Awaitable[int]) -> int:
        await self._may_be_durable.wait()
        return await durable


async def test_a_links_commit_does_not_overtake_the_invalidation_of_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the link would not notice that tombstones may have gone meanwhile."""
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(5))
        now_ms = served.broker.clock.now_ms()
        appends = HeldAppends(monkeypatch)

        expiry = asyncio.create_task(served.broker.offsets.expiry.expire())
        await appends.next_of(expiry)
        late = asyncio.create_task(commits(served, slot(8, at_ms=now_ms)))
        await appends.next_of(late)
        appends.release()
        await expiry

        assert await late is ErrorCode.OFFSET_OUT_OF_RANGE
        assert stored(served) == (5, INVALIDATED_MS)
        assert served.broker.groups.holds.invalidated_total == 1


async def test_a_slot_whose_commit_is_on_its_way_is_not_invalidated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path) as served:
        await with_records(served)
        await commits(served, slot(5))
        now_ms = served.broker.clock.now_ms()
        appends = HeldAppends(monkeypatch)

        early = asyncio.create_task(commits(served, slot(8, at_ms=now_ms)))
        await appends.next_of(early)
        expiry = asyncio.create_task(served.broker.offsets.expiry.expire())
        await appends.next_of(expiry)
        appends.release()
        await expiry

        assert await early is ErrorCode.NONE
        assert stored(served) == (8, now_ms)
        assert served.broker.groups.holds.invalidated_total == 0
