"""Checks manual replica assignments; this broker is the only one, so it must be the only replica. Pure.

Messages are Kafka's. Source: Apache Kafka, ReplicationControlManager.java
`validateManualPartitionAssignment`.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.wire.error_codes import ErrorCode
from server.topics.topic import TopicRefused


def fault_of_replicas(broker_ids: Sequence[int], node_id: int) -> TopicRefused | None:
    """Returns why a partition cannot be on these brokers; None if it can."""
    if not broker_ids:
        return _refused("an empty replica list.")
    unknown = [broker_id for broker_id in sorted(broker_ids) if broker_id != node_id]
    if unknown:
        return _refused(f"broker {unknown[0]}, but no such broker is registered.")
    if len(broker_ids) > 1:
        return _refused(f"the broker {node_id} more than once.")
    return None


def _refused(what: str) -> TopicRefused:
    return TopicRefused(
        error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        message=f"The manual partition assignment includes {what}",
    )
