"""A topic of another cluster, as a link finds it."""

from __future__ import annotations

from uuid import UUID

from server.replication.findings import SourceTopic
from server.replication.source_topics import FoundTopic

SOURCE_ID = UUID(int=7)


def source_topic(name: str, partitions: int = 1, **overrides: str) -> FoundTopic:
    """Returns a topic; `segment_ms="1000"` is its property `segment.ms`."""
    facts = SourceTopic(
        topic_id=SOURCE_ID,
        partitions_count=partitions,
        compacts=False,
        deletes=True,
        delete_retention_ms=1,
        holds_tombstones=False,
    )
    properties = {key.replace("_", "."): value for key, value in overrides.items()}
    return FoundTopic(name=name, facts=facts, overrides=properties, leaders={}, leader_epochs={})
