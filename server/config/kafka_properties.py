"""Recognizes Kafka's broker properties that have no effect on this broker.

A `server.properties` written for Kafka must start this broker without a wall of warnings, but a
misspelt name must be visible. So we distinguish Kafka's names from unknown ones.

Source: Apache Kafka 4.3, the broker configuration's documentation.
"""

from __future__ import annotations

PREFIXES = (
    "advertised.", "authorizer.", "auto.leader.", "broker.", "client.quota.", "compression.",
    "connection", "control.plane.", "controlled.shutdown.", "controller.", "delegation.token.",
    "early.start.", "eligible.leader.", "fetch.", "group.", "initial.broker.", "inter.broker.",
    "internal.", "kafka.metrics.", "leader.", "listener.name.", "log.", "max.connection",
    "max.incremental.", "max.request.partition.", "metadata.", "metric", "metrics.", "num.",
    "offset.metadata.", "offsets.", "password.encoder.", "principal.", "process.roles",
    "producer.id.", "producer.purgatory.", "queued.", "quota.", "quorum.", "remote.",
    "replica.", "request.timeout.", "reserved.broker.", "sasl.", "security.", "server.max.",
    "share.", "socket.", "ssl.", "telemetry.", "transaction.", "transactional.id.",
    "transaction.state.", "unstable.", "zookeeper.",
)  # fmt: skip
NAMES = frozenset(
    {
        "alter.config.policy.class.name", "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds", "background.threads",
        "create.topic.policy.class.name", "delete.records.purgatory.purge.interval.requests",
        "add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms",
        "node.id", "rack", "broker.rack",
    }
)  # fmt: skip


def is_known_to_kafka(name: str) -> bool:
    """Returns whether Apache Kafka's brokers have, or had, such a property.

    Most names are recognized by their prefix: a list of 300 names, which would also catch misspelt
    endings, is not worth it.
    """
    return name in NAMES or name.startswith(PREFIXES)
