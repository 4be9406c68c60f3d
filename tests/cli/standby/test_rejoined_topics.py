"""Topics that only the old primary has, when it follows the new one: they are put aside, whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.standby import whole_broker
from protocol.messages.fetch import FetchResponse
from server.topics.topic import Topic
from storage.files.paths import topic_directory
from tests.harness.on_disk_reader import read_log
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    records_in,
    serving_broker,
)
from tests.harness.standby_broker import (
    RunningStandby,
    promoted_from,
    running_standby,
    serving_source,
)

CLUSTER = "bm90LWEtcmVhbC1jbHVzdA"


@asynccontextmanager
async def old_primary(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    """Run the broker whose directory becomes a standby's later."""
    async with serving_broker(tmp_path / "old", cluster_id=CLUSTER, node_id="2") as old:
        yield old


@asynccontextmanager
async def rejoined(tmp_path: Path) -> AsyncIterator[tuple[ServedBroker, RunningStandby]]:
    """Run the new primary, and let the old one's directory follow it."""
    async with (
        serving_source(tmp_path / "new", cluster_id=CLUSTER) as new,
        running_standby(new, tmp_path / "old", rejoins=True) as standby,
    ):
        yield new, standby


def put_aside(tmp_path: Path, topic: Topic) -> dict[int, list[bytes | None]]:
    """Returns the values in each log of a topic that was put aside."""
    return {
        int(each.name): [record[3] for record in read_log(each).records()]
        for each in put_aside_directory(tmp_path, topic).iterdir()
    }


def put_aside_directory(tmp_path: Path, topic: Topic) -> Path:
    return tmp_path / "old" / f"{topic_directory(topic.name, topic.id)}.before"


async def test_a_topic_that_the_new_primary_never_had_is_put_aside_and_does_not_come_back(
    tmp_path: Path,
) -> None:
    async with old_primary(tmp_path) as old:
        mine = await old.create("mine", 2)
        await old.produce("mine", batch_of(3, value=b"only here"))
    async with rejoined(tmp_path) as (new, standby):
        await standby.until(lambda _: put_aside_directory(tmp_path, mine).exists())
        await standby.until_ready()
        status, report = await promoted_from(new, standby)
        assert (status, report.get("missing")) == (200, []), report
    assert put_aside(tmp_path, mine) == {0: [b"only here"] * 3, 1: []}


async def test_another_topic_of_the_same_name_is_copied_once_the_old_one_is_put_aside(
    tmp_path: Path,
) -> None:
    async with old_primary(tmp_path) as old:
        before = await old.create("orders")
        await old.produce("orders", batch_of(3, value=b"before"))
    async with rejoined(tmp_path) as (new, standby):
        after = await new.create("orders")
        await new.produce("orders", batch_of(2, value=b"after"))
        await standby.until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
        await standby.until_ready()
        assert after.id != before.id
        status, report = await promoted_from(new, standby)
        assert (status, report.get("missing")) == (200, []), report
        client = await standby.connect()
        fetched = only_fetched(
            await client.call(fetch_request([("orders", 0, 0)]), 12, FetchResponse)
        )
        assert [each.value for each in records_in(fetched)] == [b"after"] * 2
    assert put_aside(tmp_path, before) == {0: [b"before"] * 3}


async def test_a_topic_with_partitions_that_the_new_primary_never_had_is_copied_once_more(
    tmp_path: Path,
) -> None:
    async with old_primary(tmp_path) as old:
        orders = await old.create("orders", 2)
        for partition in range(2):
            await old.produce("orders", batch_of(3, value=b"old"), partition=partition)
    async with rejoined(tmp_path) as (new, standby):
        created = await new.broker.topics.create("orders", partitions_count=1, topic_id=orders.id)
        assert isinstance(created, Topic), created
        await new.produce("orders", batch_of(2, value=b"new"))
        await standby.until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
        await standby.until_ready()
    assert put_aside(tmp_path, orders) == {0: [b"old"] * 3, 1: [b"old"] * 3}


async def test_a_forced_takeover_waits_for_a_topic_that_it_has_put_aside_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the takeover looks for topics that are gone.
    monkeypatch.setattr(whole_broker, "LOOK_SECONDS", 3600.0)
    async with old_primary(tmp_path) as old:
        orders = await old.create("orders", 2)
        await old.produce("orders", batch_of(3, value=b"old"))
    async with rejoined(tmp_path) as (new, standby):
        created = await new.broker.topics.create("orders", partitions_count=1, topic_id=orders.id)
        assert isinstance(created, Topic), created
        await new.produce("orders", batch_of(2, value=b"new"))
        await standby.until(lambda it: it["state"] == "current")
        status, report = await promoted_from(new, standby, force=True)
        while "still starting" in report.get("error", ""):
            status, report = await promoted_from(new, standby, force=True)
        assert (status, report.get("missing")) == (200, []), report
        client = await standby.connect()
        asked = fetch_request([("orders", 0, 0)])
        fetched = only_fetched(await client.call(asked, 12, FetchResponse))
        assert [record.value for record in records_in(fetched)] == [b"new"] * 2
    assert put_aside(tmp_path, orders)[0] == [b"old"] * 3
