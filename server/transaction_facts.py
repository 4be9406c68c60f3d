"""What commands ask a broker about transactions: those of its coordinator, and those of its logs.

A transaction that is open in a log, and that no coordinator has in this partition, hangs: no marker will
ever come (KIP-664). Clients before KIP-890 could leave such ones behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from protocol.messages.describe_transactions import TransactionState as Described
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from protocol.messages.list_transactions import TransactionState as Listed
from server.broker_client import BrokerClient, loaded
from server.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from server.group_described import Part
from server.topic_facts import Parts, refusal

NO_DURATION = -1
NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction without a marker in one log."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of the producer's last marker in the log; -1: it has none."""
    start_offset: int
    last_append_ms: int

    @property
    def part(self) -> Part:
        return self.topic, self.partition


async def listed(
    client: BrokerClient,
    *,
    states: Sequence[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = NO_DURATION,
) -> list[Listed]:
    """The transactional ids that fit, in order.

    Raises:
        CommandFailed: a state is none, or the broker does not know its transactions.
    """
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=longer_than_ms,
    )
    answer = await loaded(
        lambda: client.call(request, ListTransactionsResponse), lambda answer: answer.error_code
    )
    if answer.error_code:
        raise CommandFailed(EXIT_FAILED, refusal(answer.error_code, None))
    if answer.unknown_state_filters:
        raise CommandFailed(EXIT_USAGE, f"{answer.unknown_state_filters[0]} is no state")
    return sorted(answer.transaction_states, key=lambda each: each.transactional_id)


async def transactional_ids(client: BrokerClient) -> list[str]:
    """All of them."""
    return [each.transactional_id for each in await listed(client)]


async def described(client: BrokerClient, transactional_id: str) -> Described:
    """A transactional id. Raises CommandFailed: there is none."""
    found = await _described(client, transactional_id)
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandFailed(
            EXIT_FAILED,
            f"there is no transactional id {transactional_id};"
            " kompakt transactions list shows which there are",
        )
    if found.error_code:
        raise CommandFailed(EXIT_FAILED, f"{transactional_id}: {refusal(found.error_code, None)}")
    return found


async def _described(client: BrokerClient, transactional_id: str) -> Described:
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
    answer = await loaded(
        lambda: client.call(request, DescribeTransactionsResponse),
        lambda answer: answer.transaction_states[0].error_code,
    )
    return answer.transaction_states[0]


def parts_in(transaction: Described) -> list[Part]:
    """Where a transaction still wants a marker, in order."""
    return sorted(
        (topic.topic, number) for topic in transaction.topics for number in topic.partitions
    )


async def open_in_logs(client: BrokerClient, parts: Parts) -> list[OpenTransaction]:
    """What is open in these partitions, in order. Raises CommandFailed: one is not served."""
    asked = tuple(
        TopicRequest(name=topic, partition_indexes=tuple(numbers))
        for topic, numbers in parts.items()
    )
    answer = await client.call(DescribeProducersRequest(topics=asked), DescribeProducersResponse)
    found = []
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code:
                why = refusal(part.error_code, part.error_message)
                raise CommandFailed(EXIT_FAILED, f"{topic.name}-{part.partition_index}: {why}")
            found += [
                OpenTransaction(
                    topic=topic.name,
                    partition=part.partition_index,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    coordinator_epoch=each.coordinator_epoch,
                    start_offset=each.current_txn_start_offset,
                    last_append_ms=each.last_timestamp,
                )
                for each in part.active_producers
                if each.current_txn_start_offset != NO_TRANSACTION
            ]
    return sorted(found, key=lambda each: (each.part, each.start_offset))


async def owners_of(
    client: BrokerClient, transactions: Sequence[OpenTransaction]
) -> Mapping[OpenTransaction, str]:
    """By what is open in a log the transactional id that will end it. What is not there hangs."""
    producer_ids = {each.producer_id for each in transactions}
    if not producer_ids:
        return {}
    owners: dict[OpenTransaction, str] = {}
    for known in await listed(client, producer_ids=sorted(producer_ids)):
        transaction = await _described(client, known.transactional_id)
        if transaction.error_code == ErrorCode.NONE:
            parts = set(parts_in(transaction))
            owners |= {
                each: known.transactional_id
                for each in transactions
                if each.producer_id == transaction.producer_id and each.part in parts
            }
    return owners
