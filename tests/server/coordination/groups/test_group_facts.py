"""The facts about groups for a scrape: committed offsets compared with the logs."""

from __future__ import annotations

from pathlib import Path

from server.coordination.groups.group_facts import group_facts
from server.coordination.groups.offset_checks import Claim
from tests.harness.garbage import at_every_collection
from tests.harness.offsets_world import commit
from tests.harness.served_broker import batch_of, serving_broker


async def test_lag_is_what_stands_between_the_commit_and_the_high_watermark(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t", 2)
        await served.produce("t", batch_of(10))
        records = [commit(0, 4), commit(1, 7), commit(9, 1), commit(0, 3, topic="gone")]
        await served.broker.offsets.commit("g", Claim(), records)

        (facts,) = group_facts(served.broker.groups.table, served.broker.readable_topics)

        assert (facts.group_id, facts.state, facts.members_count) == ("g", "Empty", 0)
        assert {topic.topic: topic.offsets for topic in facts.topics} == {
            # Nobody can be ahead of the log; of what is not served nothing is known.
            "t": [(0, 4, 6, 6), (1, 7, 0, 0), (9, 1, None, None)],
            "gone": [(0, 3, None, None)],
        }


async def test_a_commit_during_a_scrape_does_not_fail_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t", 1)
        await served.broker.offsets.commit("g", Claim(), [commit(0, 4), commit(1, 7, topic="u")])
        (entry,) = served.broker.groups.table.entries()
        committed = entry.offsets.by_topic()
        one = committed["t"][0]

        def commit_more() -> None:
            committed[f"topic {len(committed)}"] = {0: one}
            committed["t"][len(committed["t"])] = one

        with at_every_collection(commit_more):
            (facts,) = group_facts(served.broker.groups.table, served.broker.readable_topics)
            names = {topic.topic: len(topic.offsets) for topic in facts.topics}

        assert {"t", "u"} <= names.keys()
        assert len(committed) > len(names), "a collection ran"
