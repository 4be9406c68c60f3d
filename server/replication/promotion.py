"""What keeps a mirror from being promoted: pure, from its partitions' facts."""

from __future__ import annotations

from collections.abc import Iterable

from cleaner.rules.text import count_text
from server.replication.mirror import MirrorFacts
from server.replication.state_table import MirrorState
from storage.formats.topic_partition import TopicPartition


def missing_at_promotion(
    facts: Iterable[MirrorFacts], link_reason: str, *, lag_max: int = 0
) -> list[str]:
    """Returns a sentence for each partition that lacks records of the source, or may lack some.

    Args:
        link_reason: why the source does not answer; empty if it does.
        lag_max: how many offsets a partition may be behind, because they are waited for.
    """
    return [text for each in facts if (text := _missing(each, link_reason, lag_max))]


def _missing(facts: MirrorFacts, link_reason: str, lag_max: int) -> str:
    if facts.resync is not None:
        return (
            f"{facts.partition}: a resync is under way: this log may have deleted keys, and the new copy"
            " lacks records; --force promotes this log and drops the copy"
        )
    if facts.source_end < 0:
        return unknown(facts.partition, facts.end, "the source was never asked where its log ends")
    if facts.lag > lag_max:
        return (
            f"{facts.partition}: {count_text(facts.lag, 'offset')} behind: this log ends at {facts.end},"
            f" the source's at {facts.source_end}"
        )
    if facts.state is not MirrorState.COPYING:
        reason = facts.reason or str(facts.state)
        return unknown(facts.partition, facts.end, f"it is not copied now ({reason})")
    if link_reason:
        return unknown(facts.partition, facts.end, f"the source does not answer ({link_reason})")
    return ""


def unknown(partition: TopicPartition, end: int, reason: str) -> str:
    """Returns the sentence about a partition of which it is not known what is missing."""
    return f"{partition}: unknown, because {reason}; this log ends at {end}"
