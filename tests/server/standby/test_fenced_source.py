"""A standby copies the last records of its source while that is fenced, and has no coordinators."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cli.standby.whole_broker import standby_link
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from server.client.access import Access
from server.client.pauses import Pacing
from server.replication import link as link_module
from server.replication.state_table import MirrorState
from tests.harness.fencing import fence, lift
from tests.harness.log_builder import batch_of as keyed
from tests.harness.log_home import read_all
from tests.harness.served_broker import ServedBroker, batch_of
from tests.harness.standby_broker import (
    SECONDS_MAX,
    log_in,
    mirrors,
    serving_source,
    standby_of,
    until,
    until_copied,
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry soon, and look at the slots often. The source's topics are looked at as seldom as ever."""
    monkeypatch.setattr(link_module, "SLOTS_SECONDS", 0.02)
    often = Pacing(first_s=0.05, max_s=0.1, least_share=1.0, most_share=1.0)
    monkeypatch.setattr(link_module, "STANDBY", often)


async def test_a_standby_that_starts_while_its_source_is_fenced_copies_what_it_lacks(
    tmp_path: Path,
) -> None:
    async with serving_source(tmp_path / "source") as source:
        await source.create("orders")
        await source.produce("orders", batch_of(3))
        async with standby_of(source, tmp_path / "standby") as standby:
            await until_copied(standby, "orders", 3)
        await source.produce("orders", batch_of(2))
        await source.create("late")
        await source.produce("late", batch_of(1))
        await fence(source)

        async with standby_of(source, tmp_path / "standby") as standby:
            assert read_all(await until_copied(standby, "orders", 5)) == read_all(
                source.log("orders")
            )
            await until_copied(standby, "late", 1)


async def test_a_topic_and_partitions_of_the_last_moment_are_copied_from_the_fenced_source(
    tmp_path: Path,
) -> None:
    async with serving_source(tmp_path / "source") as source:
        await source.create("orders")
        async with standby_of(source, tmp_path / "standby") as standby:
            await until(lambda: [each.state for each in mirrors(standby)] == [MirrorState.COPYING])
            await source.create("late", partitions=2)
            await source.broker.topics.add_partitions("orders", 2)
            await source.produce("late", batch_of(1), partition=1)
            await source.produce("orders", batch_of(2), partition=1)

            await fence(source)

            await until_copied(standby, "late", 1, partition=1)
            await until_copied(standby, "orders", 2, partition=1)


async def test_a_compacted_mirror_whose_slot_cannot_be_read_is_copied_once_more(
    tmp_path: Path,
) -> None:
    async with serving_source(tmp_path / "source") as source:
        await source.create("state", cleanup_policy="compact")
        await source.produce("state", keyed([(b"a", b"1"), (b"b", b"1")]))
        async with standby_of(source, tmp_path / "standby") as standby:
            await until_copied(standby, "state", 2)
        await source.produce("state", keyed([(b"a", None)]))
        await fence(source)

        async with standby_of(source, tmp_path / "standby") as standby:
            log = await until_copied(standby, "state", 3)
            await until(lambda: [each.state for each in mirrors(standby)] == [MirrorState.COPYING])
            assert read_all(log) == read_all(source.log("state"))


async def test_a_topic_that_the_source_had_deleted_before_the_fence_is_gone_for_the_mirror(
    tmp_path: Path,
) -> None:
    async with serving_source(tmp_path / "source") as source:
        topic = await source.create("orders")
        await source.produce("orders", batch_of(3))
        async with standby_of(source, tmp_path / "standby") as standby:
            await until_copied(standby, "orders", 3)
            await source.broker.topics.delete(topic)

            await fence(source)

            await until(lambda: [each.state for each in mirrors(standby)] == [MirrorState.FAILED])
            log = log_in(standby, "orders")
            assert log is not None
            assert log.log_end_offset == 3


async def test_slots_are_committed_again_once_the_fence_is_lifted(tmp_path: Path) -> None:
    async with serving_source(tmp_path / "source") as source:
        await source.create("orders")
        await source.produce("orders", batch_of(3))
        await fence(source)
        async with standby_of(source, tmp_path / "standby") as standby:
            await until_copied(standby, "orders", 3)
            await lift(source)
            await source.produce("orders", batch_of(2))
            await until_copied(standby, "orders", 5)
            async with asyncio.timeout(SECONDS_MAX):
                while await slots_of(source) != [5]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


async def slots_of(source: ServedBroker) -> list[int]:
    """Returns how far the mirrors are, as the source knows it."""
    group = standby_link("s", "", Access(), has_led=False).group
    request = OffsetFetchRequest(group_id=group, topics=None)
    answer = await source.call(request, 7, OffsetFetchResponse)
    return [each.committed_offset for topic in answer.topics for each in topic.partitions]
