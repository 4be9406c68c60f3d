"""Logs configured properties that have no effect. Imported only if there are some.

A `server.properties` written for Kafka must start this broker without a wall of warnings, but a
misspelt name must be visible. So Kafka's names are distinguished from unknown ones.

Source: Apache Kafka 4.3, the broker configuration's documentation.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable

_log = logging.getLogger("server.config.config")

TYPO_SIMILARITY_MIN = 0.92
"""Two names this similar differ in a letter or two; log.segmnt.bytes has 0.97."""

PREFIXES = (
    "advertised.", "auto.leader.", "broker.", "client.quota.", "compression.",
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


def log_unused(names: Iterable[str], known: Collection[str]) -> None:
    """Log one line for all Kafka properties without effect here, and a warning for each unknown name."""
    of_kafka: list[str] = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, known, n=1)
        # A typo often keeps one of Kafka's prefixes; only its similarity to a known name reveals it.
        if _is_known_to_kafka(name) and not (
            near and _similarity(name, near[0]) > TYPO_SIMILARITY_MIN
        ):
            of_kafka.append(name)
            continue
        hint = f"; did you mean {near[0]}?" if near else ""
        _log.warning("%s: unknown property, ignored%s", name, hint)
    if of_kafka:
        _log.info("Kafka properties without effect here: %s", ", ".join(of_kafka))


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _is_known_to_kafka(name: str) -> bool:
    """Returns whether Apache Kafka's brokers have, or had, such a property.

    Most names are recognized by their prefix: a list of 300 names, which would also catch misspelt
    endings, is not worth it.
    """
    return name in NAMES or name.startswith(PREFIXES)
