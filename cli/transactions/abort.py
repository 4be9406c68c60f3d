"""Carries out `kompakt transactions abort` and prints the result.

The coordinator aborts a transaction that it knows, in every partition: its id gets a new epoch, which
fences the producer, as Kafka's `fenceProducers` does. A hanging transaction is ended by a marker in the
log of one partition (KIP-664). This is refused for a transaction that the coordinator knows, because the
coordinator could still commit it in the other partitions.
"""

from __future__ import annotations

import asyncio

import typer

from cleaner.rules.text import count_text
from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.output import print_json
from cli.base.topic_facts import describe, refusal
from cli.transactions.facts import (
    OpenTransaction,
    describe_transaction,
    open_in_logs,
    owners_of,
    parts_in,
)
from protocol.messages.describe_transactions import TransactionState as Described
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.wire.error_codes import ErrorCode

ONGOING = "Ongoing"
ABORT_ATTEMPTS, ABORT_PAUSE_SECONDS = 50, 0.2
"""The coordinator answers CONCURRENT_TRANSACTIONS while it writes the markers."""


async def abort(bootstrap: str, transactional_id: str, *, is_executed: bool, as_json: bool) -> int:
    """Show the open transaction of a transactional id and, if `is_executed`, abort it."""
    async with connected(bootstrap) as client:
        transaction = await describe_transaction(client, transactional_id)
        if transaction.transaction_state != ONGOING:
            state = transaction.transaction_state
            raise CommandFailed(
                EXIT_FAILED, f"{transactional_id} has no open transaction: its state is {state}"
            )
        if is_executed:
            await _fence(client, transaction)
    parts = parts_in(transaction)
    if as_json:
        rows = [{"topic": topic, "partition": number} for topic, number in parts]
        print_json(
            {
                "transactional_id": transactional_id,
                "is_executed": is_executed,
                "partitions": rows,
            }
        )
    else:
        what = f"the transaction of {transactional_id} in {count_text(len(parts), 'partition')}"
        _print_aborted(what, is_executed=is_executed)
    return 0


async def _fence(client: BrokerClient, transaction: Described) -> None:
    request = InitProducerIdRequest(
        transactional_id=transaction.transactional_id,
        transaction_timeout_ms=transaction.transaction_timeout_ms,
    )
    code: int = ErrorCode.NONE
    for _ in range(ABORT_ATTEMPTS):
        code = (await client.call(request, InitProducerIdResponse)).error_code
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
        await asyncio.sleep(ABORT_PAUSE_SECONDS)
    if code:
        raise CommandFailed(EXIT_FAILED, f"{transaction.transactional_id}: {refusal(code, None)}")


async def abort_hanging(
    bootstrap: str, partition: str, start_offset: int, *, is_executed: bool, as_json: bool
) -> int:
    """Show the transaction that hangs in a partition since an offset and, if `is_executed`, end it."""
    topic, number = _parse_partition(partition)
    async with connected(bootstrap) as client:
        transaction = await _find_hanging(client, topic, number, start_offset)
        if is_executed:
            await _write_marker(client, transaction)
    if as_json:
        print_json(
            {
                "topic": topic,
                "partition": number,
                "start_offset": start_offset,
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "is_executed": is_executed,
            }
        )
    else:
        what = f"the transaction of producer {transaction.producer_id} in {partition}"
        _print_aborted(what, is_executed=is_executed)
    return 0


def _parse_partition(text: str) -> tuple[str, int]:
    topic, dash, number = text.rpartition("-")
    if not dash or not number.isascii() or not number.isdigit():
        raise CommandFailed(EXIT_USAGE, f"--partition {text}: write TOPIC-NUMBER, such as orders-3")
    return topic, int(number)


async def _find_hanging(
    client: BrokerClient, topic: str, number: int, start_offset: int
) -> OpenTransaction:
    await describe(client, [topic])
    found = await open_in_logs(client, {topic: [number]})
    transaction = next((each for each in found if each.start_offset == start_offset), None)
    if transaction is None:
        starts = ", ".join(str(each.start_offset) for each in found) or "none"
        raise CommandFailed(
            EXIT_FAILED,
            f"no transaction is open in {topic}-{number} since offset {start_offset};"
            f" open since: {starts}",
        )
    owner = (await owners_of(client, [transaction])).get(transaction)
    if owner is not None:
        raise CommandFailed(
            EXIT_FAILED,
            f"this transaction does not hang: abort all of it with kompakt transactions abort {owner}",
        )
    return transaction


async def _write_marker(client: BrokerClient, transaction: OpenTransaction) -> None:
    """Write an abort marker, with the coordinator epoch of the producer's last marker."""
    topic = WritableTxnMarkerTopic(
        name=transaction.topic, partition_indexes=(transaction.partition,)
    )
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    request = WriteTxnMarkersRequest(markers=(marker,))
    answer = await client.call(request, WriteTxnMarkersResponse)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        where = f"{transaction.topic}-{transaction.partition}"
        raise CommandFailed(EXIT_FAILED, f"{where}: {refusal(code, None)}")


def _print_aborted(what: str, *, is_executed: bool) -> None:
    if is_executed:
        typer.echo(f"aborted {what}")
    else:
        typer.echo(f"would abort {what}: add --execute to abort it")
