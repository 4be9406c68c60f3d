"""The part of the broker's configuration that is about transactions.

Source: Apache Kafka, TransactionStateManagerConfig.java, TransactionLogConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import INT, prop


@dataclass(frozen=True, kw_only=True)
class TransactionConfig:
    """Timeouts and retention of transactions and transactional ids."""

    __slots__ = ()

    transaction_max_timeout_ms: int = prop(
        "transaction.max.timeout.ms",
        INT,
        default=900_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The longest timeout that a transactional producer may request. Longer: a dead producer can"
        " block read_committed consumers and the cleaner for longer.",
    )
    transactional_id_expiration_ms: int = prop(
        "transactional.id.expiration.ms",
        INT,
        default=604_800_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="A transactional id is deleted this long after its last change, unless it has an open"
        " transaction.",
    )
    transaction_state_log_num_partitions: int = prop(
        "transaction.state.log.num.partitions",
        INT,
        default=50,
        at_least=1,
        dynamic=False,
        doc="Partitions of __transaction_state, which stores the states of transactions. Used when the"
        " topic is created; the partition of a transactional id never changes.",
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
        doc="A timed-out transaction is aborted at once; if the abort cannot be written, it is retried"
        " after this time.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = prop(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        default=3_600_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The interval between two searches for expired transactional ids.",
    )
