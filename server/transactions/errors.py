"""The coordinator's errors as the versions of its APIs know them."""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from server.dispatch import RequestContext

ABORTABLE_SINCE_PRODUCE = 11
CONCURRENT_SINCE_PRODUCE = 12

_RETRIED_BY_ALL = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Producers ask the coordinator nothing by Produce: what it cannot say now comes as an error that
every one of them tries again."""


def in_terms_of(error_code: ErrorCode, context: RequestContext, *, fenced_since: int) -> ErrorCode:
    """An error in a client's terms.

    Args:
        fenced_since: the first version that knows PRODUCER_FENCED (KIP-588).
    """
    is_old = context.header.api_version < fenced_since
    if is_old and error_code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


def produce_error(error_code: ErrorCode, context: RequestContext) -> ErrorCode:
    """An error in the terms of a Produce: a fenced producer may still abort (KIP-588), a batch
    outside its transaction makes it abort since v11, and since v12 a producer knows what to do while
    its last transaction is being completed (KIP-890).

    Source: Apache Kafka, ReplicaManager.scala `handleProduceAppend`, AddPartitionsToTxnManager.java.
    """
    version = context.header.api_version
    match error_code:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.INVALID_TXN_STATE if version >= ABORTABLE_SINCE_PRODUCE:
            return ErrorCode.TRANSACTION_ABORTABLE
        case ErrorCode.CONCURRENT_TRANSACTIONS if version >= CONCURRENT_SINCE_PRODUCE:
            return error_code
    return _RETRIED_BY_ALL.get(error_code, error_code)
