"""Which brokers a client wants a partition to be on: there is one, so it can only be that. Pure.

Messages as Kafka's. Source: Apache Kafka, ReplicationControlManager.java
`validateManualPartitionAssignment`.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.error_codes import ErrorCode
from server.topic import TopicRefused


def fault_of_replicas(broker_ids: Sequence[int], node_id: int) -> TopicRefused | None:
    """Why a partition cannot be on these brokers; None if it can."""
    if not broker_ids:
        return _refused("an empty replica list.")
    strangers = [broker_id for broker_id in sorted(broker_ids) if broker_id != node_id]
    if strangers:
        return _refused(f"broker {strangers[0]}, but no such broker is registered.")
    if len(broker_ids) > 1:
        return _refused(f"the broker {node_id} more than once.")
    return None


def _refused(what: str) -> TopicRefused:
    return TopicRefused(
        error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        message=f"The manual partition assignment includes {what}",
    )
