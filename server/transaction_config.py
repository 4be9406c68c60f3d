"""The part of the broker's configuration that is about transactions.

Source: Apache Kafka, TransactionStateManagerConfig.java, TransactionLogConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.group_config import GroupConfig
from storage.config_property import INT, prop


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig(GroupConfig):
    """How long transactions, and the ids of those who have them, may last."""

    transaction_max_timeout_ms: int = prop(
        "transaction.max.timeout.ms",
        INT,
        default=900_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The longest timeout that a transactional producer may ask for. Longer: who reads only what"
        " is committed, and the cleaner, may be held up for longer by a producer that has died.",
    )
    transactional_id_expiration_ms: int = prop(
        "transactional.id.expiration.ms",
        INT,
        default=604_800_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="A transactional id is forgotten so long after its last change, unless a transaction of it"
        " is open.",
    )
    transaction_state_log_num_partitions: int = prop(
        "transaction.state.log.num.partitions",
        INT,
        default=50,
        at_least=1,
        dynamic=False,
        doc="Partitions of __transaction_state, which holds where transactions stand. It counts when the"
        " topic is made; which partition a transactional id is in never changes.",
    )
    transaction_state_log_segment_bytes: int = prop(
        "transaction.state.log.segment.bytes",
        INT,
        default=104_857_600,
        at_least=1 << 20,
        unit="bytes",
        dynamic=False,
        doc="segment.bytes of __transaction_state. Small, so that it is compacted soon and loads fast.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = prop(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        default=10_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="A transaction whose timeout is over is aborted at once; where that cannot be written, it is"
        " tried again after this time.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = prop(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        default=3_600_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often transactional ids are looked at for those that have expired.",
    )
