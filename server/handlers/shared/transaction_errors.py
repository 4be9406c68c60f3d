"""Translates the coordinator's errors for the API versions of clients."""

from __future__ import annotations

from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext

ABORTABLE_SINCE_PRODUCE = 11
CONCURRENT_SINCE_PRODUCE = 12

_AS_RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""In Produce, errors that concern the coordinator become one that all producers retry: a producer does
not expect coordinator errors there."""


def error_for_version(
    error_code: ErrorCode, context: RequestContext, *, fenced_since: int
) -> ErrorCode:
    """Returns the error code that a client of this version understands.

    Args:
        fenced_since: the first version that knows PRODUCER_FENCED (KIP-588).
    """
    is_old = context.header.api_version < fenced_since
    if is_old and error_code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


def produce_error(error_code: ErrorCode, context: RequestContext) -> ErrorCode:
    """Returns the error code for a Produce response. A fenced producer may still abort (KIP-588); a
    batch outside of its transaction makes the producer abort since v11; and since v12 a producer can
    handle CONCURRENT_TRANSACTIONS while its last transaction is being completed (KIP-890).

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
    return _AS_RETRIABLE.get(error_code, error_code)
