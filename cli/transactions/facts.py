"""Asks a broker about transactions, for commands: those of its coordinator and those in its logs.

A transaction hangs if it is open in a partition's log but no coordinator has this partition in a
transaction: no marker will ever end it (KIP-664). Clients before KIP-890 could leave such transactions
behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cli.base.broker_client import BrokerClient, ask_until_loaded
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.topic_facts import Parts, refusal
from cli.groups.describe import Part
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
from protocol.wire.error_codes import ErrorCode

NO_DURATION = -1
NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in the log of one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The coordinator epoch of the producer's last marker in the log; -1: there is no marker."""
    start_offset: int
    last_append_ms: int

    @property
    def part(self) -> Part:
        return self.topic, self.partition


async def list_transactions(
    client: BrokerClient,
    *,
    states: Sequence[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = NO_DURATION,
) -> list[Listed]:
    """Returns the transactional ids that match the filters, sorted.

    Raises:
        CommandFailed: a state does not exist, or the broker cannot list its transactions.
    """
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=longer_than_ms,
    )
    answer = await ask_until_loaded(
        lambda: client.call(request, ListTransactionsResponse), lambda answer: answer.error_code
    )
    if answer.error_code:
        raise CommandFailed(EXIT_FAILED, refusal(answer.error_code, None))
    if answer.unknown_state_filters:
        raise CommandFailed(EXIT_USAGE, f"unknown state {answer.unknown_state_filters[0]}")
    return sorted(answer.transaction_states, key=lambda each: each.transactional_id)


async def transactional_ids(client: BrokerClient) -> list[str]:
    """Returns all transactional ids, sorted."""
    return [each.transactional_id for each in await list_transactions(client)]


async def describe_transaction(client: BrokerClient, transactional_id: str) -> Described:
    """Returns the state of a transactional id. Raises CommandFailed if it does not exist."""
    found = await _describe(client, transactional_id)
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandFailed(
            EXIT_FAILED,
            f"there is no transactional id {transactional_id};"
            " kompakt transactions list shows all ids",
        )
    if found.error_code:
        raise CommandFailed(EXIT_FAILED, f"{transactional_id}: {refusal(found.error_code, None)}")
    return found


async def _describe(client: BrokerClient, transactional_id: str) -> Described:
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
    answer = await ask_until_loaded(
        lambda: client.call(request, DescribeTransactionsResponse),
        lambda answer: answer.transaction_states[0].error_code,
    )
    return answer.transaction_states[0]


def parts_in(transaction: Described) -> list[Part]:
    """Returns the partitions of a transaction, sorted."""
    return sorted(
        (topic.topic, number) for topic in transaction.topics for number in topic.partitions
    )


async def open_in_logs(client: BrokerClient, parts: Parts) -> list[OpenTransaction]:
    """Returns the transactions that are open in the logs of partitions, sorted.

    Raises:
        CommandFailed: the broker does not serve one of the partitions.
    """
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
    """Returns the transactional id that will end each open transaction. Those without one hang."""
    producer_ids = {each.producer_id for each in transactions}
    if not producer_ids:
        return {}
    owners: dict[OpenTransaction, str] = {}
    for known in await list_transactions(client, producer_ids=sorted(producer_ids)):
        transaction = await _describe(client, known.transactional_id)
        if transaction.error_code == ErrorCode.NONE:
            parts = set(parts_in(transaction))
            owners |= {
                each: known.transactional_id
                for each in transactions
                if each.producer_id == transaction.producer_id and each.part in parts
            }
    return owners
