"""A standby takes over from a source that runs: it decides about topics by their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.base.command_end import CommandFailed
from cli.standby import takeover as takeover_module
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from server.replication import link as link_module
from server.topics.topic import Topic, TopicRefused
from server.topics.topics import Topics
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    batch_of,
    fetch_request,
    only_fetched,
    records_in,
)
from tests.harness.standby_broker import (
    RunningStandby,
    promoted_from,
    running_standby,
    serving_source,
)


async def topics_of(client: RawClient) -> dict[str, int]:
    """Returns the ordinary topics of a broker with their numbers of partitions."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    found = (await client.call(request, 12, MetadataResponse)).topics
    return {each.name: len(each.partitions) for each in found if each.name and not each.is_internal}


async def values(client: RawClient, topic: str) -> list[bytes | None]:
    request = fetch_request([(topic, 0, 0)])
    data = only_fetched(await client.call(request, 12, FetchResponse))
    return [each.value for each in records_in(data)]


@pytest.mark.parametrize("force", [False, True])
async def test_a_topic_that_was_deleted_and_created_again_at_the_last_moment_has_its_new_records(
    tmp_path: Path, force: bool
) -> None:
    async with serving_source(tmp_path / "source") as source:
        before = await source.create("orders")
        await source.produce("orders", batch_of(5, value=b"before"))
        async with running_standby(source, tmp_path / "standby") as standby:
            await standby.until_ready()
            await standby.until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
            await source.broker.topics.delete(before)
            await source.create("orders")
            await source.produce("orders", batch_of(2, value=b"after"))

            status, report = await promoted_from(source, standby, force=force)

            assert (status, report.get("missing")) == (200, []), report
            assert await values(await standby.connect(), "orders") == [b"after"] * 2


async def test_a_topic_that_was_deleted_at_the_last_moment_does_not_come_back(
    tmp_path: Path,
) -> None:
    async with serving_source(tmp_path / "source") as source:
        gone = await source.create("orders")
        await source.create("kept")
        await source.produce("orders", batch_of(5))
        async with running_standby(source, tmp_path / "standby") as standby:
            await standby.until_ready()
            await standby.until(lambda it: it["mirrors"]["by_state"] == {"copying": 2})
            await source.broker.topics.delete(gone)

            status, report = await promoted_from(source, standby)

            assert (status, report.get("missing")) == (200, []), report
            assert await topics_of(await standby.connect()) == {"kept": 1}


async def test_topics_and_partitions_that_were_created_at_the_last_moment_are_there(
    tmp_path: Path,
) -> None:
    async with serving_source(tmp_path / "source") as source:
        await source.create("orders")
        async with running_standby(source, tmp_path / "standby") as standby:
            await standby.until_ready()
            await standby.until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
            await source.create("late")
            await source.produce("late", batch_of(2, value=b"late"))
            await source.broker.topics.add_partitions("orders", 3)

            status, report = await promoted_from(source, standby)

            assert (status, report.get("missing")) == (200, []), report
            client = await standby.connect()
            assert await topics_of(client) == {"late": 1, "orders": 3}
            assert await values(client, "late") == [b"late"] * 2


async def test_a_new_standby_with_the_brokers_node_id_is_refused(tmp_path: Path) -> None:
    async with serving_source(tmp_path / "source") as source:
        host, port = source.broker.addresses["INTERNAL"]
        # Also when the directory knows the cluster from the first attempt.
        for _ in range(2):
            standby = RunningStandby(tmp_path / "standby", f"{host}:{port}", 1, rejoins=False)
            with pytest.raises(
                CommandFailed, match=r"node.id 1 is also that of the broker at .*set another"
            ):
                await standby.ended()


async def test_a_standby_that_cannot_mirror_a_topic_is_not_ready_and_does_not_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "URGENT_REFRESH_SECONDS", 0.1)
    monkeypatch.setattr(takeover_module, "PATIENCE_SECONDS", 0.1)
    create = Topics.create

    async def refusing(topics: Topics, name: str, **asked: Any) -> Topic | TopicRefused:
        return (
            TopicRefused.by_disk("no room")
            if name == "bad"
            else await create(topics, name, **asked)
        )

    async with serving_source(tmp_path / "source") as source:
        await source.create("bad")
        monkeypatch.setattr(Topics, "create", refusing)
        async with running_standby(source, tmp_path / "standby") as standby:
            found = await standby.until(lambda it: bool(it["mirrors"]["unmirrored"]))
            assert found["mirrors"]["unmirrored"] == ["bad: not mirrored: no room"]
            await standby.until(lambda it: it["not_ready"] == "bad: not mirrored: no room")
            status, refused = await standby.promote()
            assert status == 409
            assert "bad: not mirrored: no room" in refused["missing"]

            monkeypatch.setattr(Topics, "create", create)
            await standby.until_ready()
