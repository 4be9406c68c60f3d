"""The table of all metrics: names, kinds, help texts and labels.

    client_names.py        what clients do: records, requests, connections, logins, quotas
    broker_names.py        the broker: its event loop, its disk, its start, what a single broker fixes
    coordinator_names.py   consumer groups and transactions
    partition_names.py     partitions
    cleaner_names.py       compaction, by partition and as a whole
    standby_names.py       kompakt standby, which is another process (not in this table)

Names that begin with `kafka_` are those of kafka_exporter and of Kafka's JMX exporter, so that
dashboards made for Kafka also show a Kompakt broker; the others are ours. Sizes are in bytes and times
in seconds, as Prometheus recommends, except where a Kafka name says otherwise.
"""

from __future__ import annotations

from metrics import broker_names, cleaner_names, client_names, coordinator_names, partition_names
from metrics.metric import Metric

FAMILIES = (client_names, broker_names, coordinator_names, partition_names, cleaner_names)

METRICS: tuple[Metric, ...] = (
    *(each for family in FAMILIES for each in vars(family).values() if isinstance(each, Metric)),
    *broker_names.IDLE_NAMES,
    *(metric for metric, _ in broker_names.ONE_BROKER + broker_names.ONE_REPLICA),
)
assert len({metric.name for metric in METRICS}) == len(METRICS)
