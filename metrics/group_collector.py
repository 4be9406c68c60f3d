"""Metrics of consumer groups at scrape time, with the names of kafka_exporter and of Kafka's gauges.

Each metric lists a bounded number of offsets, topics of groups, and groups: those with the largest
lag, or with the most members. Sums and counts include all.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from prometheus_client.core import Metric as Family

from metrics import coordinator_names
from metrics.facts import GroupFacts, GroupTopicFacts
from metrics.families import gauge

UNKNOWN_LAG = -1
"""The lag for a partition that is not served; less than any lag."""

_Offset: TypeAlias = tuple[int, int, str, str, int, int]
"""Lag, offset, group, topic, partition, lag in records."""

_Topic: TypeAlias = tuple[int, int, str, str, int]
"""Sums of lags and offsets, group, topic, sum of lags in records."""


@dataclass(slots=True)
class _Totals:
    """What one walk over all groups collects."""

    listed_max: int
    states: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Groups by protocol and state."""
    offsets_count: int = 0
    members: list[tuple[int, str]] = field(default_factory=list)
    topics: list[_Topic] = field(default_factory=list)
    laggards: list[_Offset] = field(default_factory=list)
    """A heap of the offsets with the largest lag."""

    def add(self, group: GroupFacts) -> None:
        self.states[group.state] += 1
        self.kinds[group.protocol, group.state] += 1
        self.members.append((group.members_count, group.group_id))
        for topic in group.topics:
            self.offsets_count += len(topic.offsets)
            lag = sum(each.lag or 0 for each in topic.offsets)
            offset = sum(each.offset for each in topic.offsets)
            records = sum(each.record_lag or 0 for each in topic.offsets)
            self.topics.append((lag, offset, group.group_id, topic.topic, records))
            self._add_laggards(group.group_id, topic)

    def _add_laggards(self, group_id: str, topic: GroupTopicFacts) -> None:
        for partition, offset, lag, record_lag in topic.offsets:
            known = UNKNOWN_LAG if lag is None else lag
            entry = (known, offset, group_id, topic.topic, partition, record_lag or 0)
            if len(self.laggards) < self.listed_max:
                heapq.heappush(self.laggards, entry)
            elif self.laggards and known > self.laggards[0][0]:
                heapq.heapreplace(self.laggards, entry)


def collect_groups(groups: Iterable[GroupFacts], *, listed_max: int) -> Iterator[Family]:
    """Yields the metrics of groups; each lists at most `listed_max` of them."""
    totals = _Totals(listed_max)
    for group in groups:
        totals.add(group)
    yield gauge(coordinator_names.GROUPS, [((), sum(totals.states.values()))])
    for state, metric in coordinator_names.GROUPS_BY_STATE.items():
        yield gauge(metric, [((), totals.states[state])])
    yield from _by_protocol(totals.kinds)
    yield gauge(coordinator_names.COMMITTED_OFFSETS, [((), totals.offsets_count)])
    members = heapq.nlargest(listed_max, totals.members)
    yield gauge(coordinator_names.GROUP_MEMBERS, [((group,), count) for count, group in members])
    listed = sorted(totals.laggards, reverse=True)
    yield gauge(
        coordinator_names.GROUP_OFFSET,
        [((group, topic, str(part)), offset) for _, offset, group, topic, part, _ in listed],
    )
    served = [each for each in listed if each[0] != UNKNOWN_LAG]
    yield gauge(
        coordinator_names.GROUP_LAG,
        [((group, topic, str(part)), lag) for lag, _, group, topic, part, _ in served],
    )
    yield gauge(
        coordinator_names.GROUP_RECORD_LAG,
        [((group, topic, str(part)), records) for *_, group, topic, part, records in served],
    )
    topics = heapq.nlargest(listed_max, totals.topics)
    yield gauge(
        coordinator_names.GROUP_OFFSET_SUM,
        [((group, topic), offset) for _, offset, group, topic, _ in topics],
    )
    yield gauge(
        coordinator_names.GROUP_LAG_SUM,
        [((group, topic), lag) for lag, _, group, topic, _ in topics],
    )
    yield gauge(
        coordinator_names.GROUP_RECORD_LAG_SUM,
        [((group, topic), records) for *_, group, topic, records in topics],
    )


def _by_protocol(kinds: Counter[tuple[str, str]]) -> Iterator[Family]:
    counts = Counter[str]()
    for (protocol, _), count in kinds.items():
        counts[protocol] += count
    yield gauge(
        coordinator_names.GROUPS_BY_PROTOCOL,
        [((each,), counts[each]) for each in coordinator_names.GROUP_PROTOCOLS],
    )
    yield gauge(
        coordinator_names.CONSUMER_GROUPS_BY_STATE,
        [((state,), kinds["consumer", state]) for state in coordinator_names.CONSUMER_GROUP_STATES],
    )
