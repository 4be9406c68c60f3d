"""Produce (key 0), v3-v13; v0-v2 are advertised only (librdkafka) and close the connection.

Behaviour: each partition is validated, appended and answered independently. acks=1 is answered after the
write, acks=-1 when the batch is durable (`server/durability/group_commit.py`), acks=0 never: an error
then closes the connection. The connection's next request starts after the append, not after the sync.
`storage/batches/validate.py` checks a batch by itself. The append then checks its producer's epoch and
sequence (`storage/state/producer_state.py`: `check_append`).
Batches that take long to validate, mainly those that inflate to many bytes, and those that are
recompressed (compression.type) are validated in a worker thread.
Clients cannot write to internal topics: INVALID_TOPIC_EXCEPTION.
If a request names a partition more than once, every batch is appended, in order, with an answer for
each. Kafka appends only the last one and answers once, so a client would believe the others were stored.
Every transactional batch is checked against its transaction right before the append, in the same turn
of the loop, so no batch can follow the marker of its transaction.
`server/handlers/shared/transaction_errors.py` translates the coordinator's errors for each version.
`server/shortcut/produce.py` serves the simplest requests before they get here, by the same rules.
Versions: v5 log_start_offset · v7 zstd (KIP-110) · v8 record_errors, error_message (KIP-467) · v12
a Produce adds its partitions to the transaction (KIP-890) · v13 topic ids (KIP-516).
Source: Apache Kafka, ReplicaManager.scala (`handleProduceAppend`), AddPartitionsToTxnManager.scala.
"""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import UUID

from protocol.messages.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    IDS_SINCE,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records.batch_header import BatchHeader
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.value_class import value_class
from server.coordination.transactions.metadata import TransactionPartition
from server.handlers.shared.joining import Refusals, join_transaction
from server.handlers.shared.topic_ids import fault_of_id, with_names
from server.handlers.shared.transaction_errors import produce_error
from server.net.connection import CloseConnection
from server.request_context import RequestContext
from server.runtime.turns import Pace
from server.security.acls import Operation, ResourceType
from server.topics.mirrors import refusal_on_mirror
from server.topics.topic import INTERNAL_TOPICS
from storage.batches.validate import (
    Refused,
    ValidationRules,
    ValidBatch,
    validate_at_once,
    validate_batch,
)
from storage.files.errors import StorageError
from storage.log.appender import Appended
from storage.log.log import PartitionLog

JOINS_SINCE = 12
"""From this version on, Produce adds new partitions to the transaction (KIP-890)."""


@value_class
class _Done:
    """One partition's response, and with acks=-1 an awaitable of whether the append is durable."""

    response: PartitionProduceResponse
    is_durable: Awaitable[bool] | None = None


_TopicKey = tuple[str, UUID]
"""The name and id of a topic; the request's version decides which of the two the response carries."""

_Outcome = list[tuple[_TopicKey, list[_Done]]]
"""The outcomes by topic, in the order of the request."""


async def handle(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    """Append every batch, then answer according to `acks`."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return refuse(request, context, ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}")
    if context.header.api_version >= IDS_SINCE:
        request = await with_names(request, context)
    not_joined: Refusals = {}
    if request.transactional_id is not None and context.header.api_version >= JOINS_SINCE:
        not_joined = await join_transaction(request.transactional_id, request, context)
    outcome: _Outcome = []
    for topic in request.topic_data:
        done = await _append_to_topic(topic, request, context, not_joined)
        outcome.append(((topic.name, topic.topic_id), done))
    if request.acks == ACKS_NONE:
        _close_if_failed(outcome)
        return None
    if request.acks == ACKS_ALL:
        context.broker.group_commit.start_round_now()
        return _answer_when_durable(outcome, context.pace)
    return await _answer(outcome, context.pace)


def refuse(
    request: ProduceRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ProduceResponse | None:
    if request.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=lazy_array(
            lambda topic: TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=lazy_array(
                    lambda data: _refused(data.index, error_code, message).response,
                    topic.partition_data,
                ),
            ),
            request.topic_data,
        )
    )


async def _append_to_topic(
    topic: TopicProduceData,
    request: ProduceRequest,
    context: RequestContext,
    not_joined: Refusals,
) -> list[_Done]:
    """Append the batches of one topic, in the order of the request."""
    refused = None
    if topic.name and not context.may(Operation.WRITE, ResourceType.TOPIC, topic.name):
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    has_ids = context.header.api_version >= IDS_SINCE
    done = []
    # Not `pace.paced`, which costs each request several calls.
    for data in topic.partition_data:
        if context.pace.is_over:
            await context.pace.rest()
        if refused is not None:
            done.append(_refused(data.index, refused))
        elif has_ids:
            done.append(await _append_by_id(topic, data, request, context, not_joined))
        else:
            done.append(await _append(topic.name, data, request, context, not_joined))
    return done


async def _append_by_id(
    topic: TopicProduceData,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    not_joined: Refusals,
) -> _Done:
    """Append one partition's batch if the name still belongs to the topic with the requested id."""
    fault = fault_of_id(topic, context)
    if fault is not None:
        return _refused(data.index, fault)
    return await _append(topic.name, data, request, context, not_joined)


async def _append(
    topic_name: str,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    not_joined: Refusals,
) -> _Done:
    """Validate and append one partition's batch."""
    log = context.log_of(topic_name, data.index)
    if isinstance(log, ErrorCode):
        view = context.broker.readable_topics.refusal(topic_name)
        return _refused(data.index, log, "" if view is None else view.message)
    if topic_name in INTERNAL_TOPICS:
        text = f"Only the broker itself writes to {topic_name}."
        return _refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    mirror = refusal_on_mirror(ApiKey.PRODUCE, topic_name, log.config)
    if mirror is not None:
        return _refused(data.index, mirror.error_code, mirror.message)
    if request.acks == ACKS_ALL and log.config.min_insync_replicas > 1:
        return _refused(data.index, ErrorCode.NOT_ENOUGH_REPLICAS)
    if not data.records:
        text = "A partition's records must be exactly one record batch."
        return _refused(data.index, ErrorCode.INVALID_RECORD, text)
    try:
        if not log.new_files.are_made:
            await context.broker.topics.make_files(log)
    except StorageError as error:
        return _refused(data.index, context.log_failure(error), str(error))
    rules = log.validation_rules(now_ms=context.broker.clock.now_ms())
    batch = validate_at_once(data.records, rules)
    if batch is None:
        batch = await _validate_in_thread(data.records, rules, context)
    if isinstance(batch, Refused):
        return _refused_batch(batch, topic_name, data.index, log, context)
    if context.log_of(topic_name, data.index) is not log:
        # The topic was deleted while a thread created the log's files or validated the batch.
        return _refused(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if batch.header.is_transactional:
        place = TransactionPartition(topic_name, data.index)
        refused = _check_transaction(batch.header, place, request, context, not_joined)
        if refused is not None:
            return _refused_batch(refused, topic_name, data.index, log, context)
    try:
        appended = log.appender.append_as_leader(batch, now_ms=context.broker.clock.now_ms())
    except StorageError as error:
        return _refused(data.index, context.log_failure(error), str(error))
    if isinstance(appended, Refused):
        return _refused_batch(appended, topic_name, data.index, log, context)
    if not appended.duplicate:
        context.broker.group_commit.appended(log)
        size, count = batch.header.size_bytes, batch.header.record_count
        context.broker.probe.batch_appended(topic_name, count, size)
    is_durable = None
    if request.acks == ACKS_ALL:
        is_durable = context.broker.group_commit.durable(log, appended.next_offset)
    return _Done(_accepted(data.index, appended, log), is_durable)


def _check_transaction(
    header: BatchHeader,
    place: TransactionPartition,
    request: ProduceRequest,
    context: RequestContext,
    not_joined: Refusals,
) -> Refused | None:
    """Returns why the transaction does not accept a batch; None if the batch may pass."""
    if request.transactional_id is None:
        text = "A transactional batch came without a transactional id."
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return Refused(error_code=code, message=text, record_count=header.record_count)
    found = not_joined.get(place) or context.broker.transactions.may_write(
        request.transactional_id, header.producer_id, header.producer_epoch, *place
    )
    if found is ErrorCode.NONE:
        return None
    return Refused(
        error_code=produce_error(found, context),
        message=f"Transaction {request.transactional_id}: {found.message}",
        record_count=header.record_count,
    )


async def _validate_in_thread(
    records: memoryview, rules: ValidationRules, context: RequestContext
) -> ValidBatch | Refused:
    """Validate a client's batch that takes long to validate.

    The pool bounds the inflated bytes over all connections: one batch per thread. Batches wait for a
    thread in the order of arrival, and hold no inflated bytes while they wait.
    """
    return await context.broker.executors.validation.run(validate_batch, records, rules)


async def _answer_when_durable(outcome: _Outcome, pace: Pace) -> ProduceResponse:
    """Wait until all appends are durable, then answer; an append that cannot become durable fails."""
    for _, partitions in outcome:
        for position, done in enumerate(partitions):
            if pace.is_over:
                await pace.rest()
            if done.is_durable is None or await done.is_durable:
                continue
            error = ErrorCode.KAFKA_STORAGE_ERROR
            partitions[position] = _refused(done.response.index, error)
    return await _answer(outcome, pace)


async def _answer(outcome: _Outcome, pace: Pace) -> ProduceResponse:
    """Returns the response. Empties `outcome` in slices, because freeing it at once would take long."""
    responses = []
    for topic, partitions in outcome:
        if pace.is_over:
            await pace.rest()
        responses.append(_topic_response(topic, partitions))
    if len(outcome) > 1:
        await pace.empty(outcome)
    return ProduceResponse(responses=tuple(responses))


def _topic_response(topic: _TopicKey, partitions: list[_Done]) -> TopicProduceResponse:
    name, topic_id = topic
    return TopicProduceResponse(
        name=name,
        topic_id=topic_id,
        partition_responses=tuple(done.response for done in partitions),
    )


def _close_if_failed(outcome: _Outcome) -> None:
    """Close the connection if a partition failed: an acks=0 producer reads no response, so this is the
    only way to report the error (as in Kafka)."""
    for (name, topic_id), partitions in outcome:
        for done in partitions:
            if done.response.error_code:
                error = ErrorCode(done.response.error_code).name
                where = f"{name or topic_id}-{done.response.index}"
                raise CloseConnection(f"acks=0 produce to {where} failed: {error}")


def _accepted(index: int, appended: Appended, log: PartitionLog) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=log.log_start_offset,
    )


def _refused(index: int, error_code: ErrorCode, message: str = "") -> _Done:
    return _Done(
        PartitionProduceResponse(
            index=index,
            error_code=error_code,
            base_offset=-1,
            error_message=message or error_code.message,
        )
    )


def _refused_batch(
    refused: Refused, topic_name: str, index: int, log: PartitionLog, context: RequestContext
) -> _Done:
    """Count a batch that validation or the log refused. Returns its response."""
    context.broker.probe.batch_refused(topic_name, refused.error_code.name, refused.record_count)
    return _Done(
        PartitionProduceResponse(
            index=index,
            error_code=refused.error_code,
            base_offset=-1,
            log_start_offset=log.log_start_offset,
            record_errors=tuple(
                BatchIndexAndErrorMessage(
                    batch_index=error.batch_index, batch_index_error_message=error.message
                )
                for error in refused.record_errors
            ),
            error_message=refused.message or refused.error_code.message,
        )
    )
