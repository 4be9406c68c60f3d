"""A member of a group with kafka-python, where the answers arrive in an unlucky order."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kafka.cluster import ClusterMetadata

from cli.consume.group_member import GroupReader
from cli.consume.range import Range
from cli.consume.records import POLL_MS
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient, create_topic

TOPIC = "orders"
PRINTING_S = 0.1
"""Between two polls. The client's network thread works meanwhile."""
VALUES = [b"%d" % number for number in range(10)]


def test_a_member_that_joins_before_it_knows_the_topic_reads_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, TOPIC)
        records = [(b"key", value) for value in VALUES]
        ConfluentClient().produce(bootstrap, {TOPIC: "none"}, records)
        # The coordinator is ready from here on, and answers the next member at once.
        assert read_as(bootstrap, "earlier") == VALUES
        is_held = hold_the_topics_metadata(monkeypatch)

        assert read_as(bootstrap, "unlucky") == VALUES
        assert is_held


def read_as(bootstrap: str, group: str) -> list[bytes | None]:
    """Returns the values that the only member of the group reads."""
    with GroupReader(
        bootstrap,
        TOPIC,
        group,
        {0: Range(begin=0, end=len(VALUES))},
        from_end=False,
        is_committed=True,
        stall_seconds_max=10,
    ) as reader:
        values: list[bytes | None] = []
        for records in reader.read_to_end():
            values += [record.value for record in records]
            time.sleep(PRINTING_S)
        return values


def hold_the_topics_metadata(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Keep the client's network thread busy, before it applies the answer that has the topic, until two
    short polls have ended. Returns a list that is empty until then."""
    is_held: list[bool] = []
    update = ClusterMetadata.update_metadata

    def slowly(cluster: ClusterMetadata, response: Any) -> None:
        if response.topics and not is_held:
            is_held.append(True)
            time.sleep(2 * POLL_MS / 1000)
        update(cluster, response)

    monkeypatch.setattr(ClusterMetadata, "update_metadata", slowly)
    return is_held
