"""What a standby says of its mirrors before its link has them all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from server.replication.link_spec import STANDBY_LINK, LinkSpec
from server.replication.mirror_topics import Made, MirrorTopics
from server.replication.source_topics import FoundTopic
from tests.harness.served_broker import batch_of
from tests.harness.standby_broker import serving_source, standby_of, until, until_copied


async def test_a_standby_has_not_followed_before_each_topic_has_its_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, has_begun, may_continue = MirrorTopics.follow, asyncio.Event(), asyncio.Event()

    async def late(topics: MirrorTopics, spec: LinkSpec, found: Iterable[FoundTopic]) -> Made:
        has_begun.set()
        await may_continue.wait()
        return await follow(topics, spec, found)

    monkeypatch.setattr(MirrorTopics, "follow", late)
    async with serving_source(tmp_path / "source") as source:
        await source.create("orders")
        await source.produce("orders", batch_of(3))
        async with standby_of(source, tmp_path / "standby") as standby:
            await has_begun.wait()
            assert not standby.replication.has_followed(STANDBY_LINK)
            may_continue.set()
            await until(lambda: standby.replication.has_followed(STANDBY_LINK))
            assert standby.replication.mirror_facts(STANDBY_LINK)
            await until_copied(standby, "orders", 3)
