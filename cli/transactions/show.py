"""Carries out `kompakt transactions list`, `describe` and `find-hanging`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import typer

from cleaner.rules.text import duration_text, moment_text
from cli.base.broker_client import connected
from cli.base.output import print_json, print_table
from cli.base.topic_facts import describe, parts_of
from cli.transactions.facts import (
    NO_DURATION,
    OpenTransaction,
    describe_transaction,
    list_transactions,
    open_in_logs,
    owners_of,
    parts_in,
)
from protocol.messages.describe_transactions import TransactionState as Described

NOT_BEGUN = -1

Json = dict[str, Any]


async def show_list(
    bootstrap: str, states: Sequence[str], longer_than_ms: int | None, *, as_json: bool
) -> int:
    """Print one row per transactional id."""
    duration_ms = NO_DURATION if longer_than_ms is None else longer_than_ms
    async with connected(bootstrap) as client:
        found = await list_transactions(client, states=states, longer_than_ms=duration_ms)
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.transaction_state,
            "producer_id": each.producer_id,
        }
        for each in found
    ]
    if as_json:
        print_json({"transactions": rows})
    elif rows:
        cells = [tuple(map(str, row.values())) for row in rows]
        titles = ("transactional id", "state", "producer")
        print_table(titles, cells, texts=titles[:2])
    else:
        typer.echo("there are no transactions")
    return 0


async def show_transactions(bootstrap: str, names: Sequence[str], *, as_json: bool) -> int:
    """Print the state and the partitions of transactional ids."""
    async with connected(bootstrap) as client:
        found = [await describe_transaction(client, name) for name in names]
    if as_json:
        print_json({"transactions": [_json(each) for each in found]})
    else:
        for each in found:
            _print(each)
    return 0


def _json(transaction: Described) -> Json:
    start_ms = transaction.transaction_start_time_ms
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.transaction_state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.transaction_timeout_ms,
        "start_time_ms": None if start_ms == NOT_BEGUN else start_ms,
        "partitions": [
            {"topic": topic, "partition": number} for topic, number in parts_in(transaction)
        ],
    }


def _print(transaction: Described) -> None:
    start_ms = transaction.transaction_start_time_ms
    since = "" if start_ms == NOT_BEGUN else f" since {moment_text(start_ms)}"
    typer.echo(
        f"{transaction.transactional_id}: {transaction.transaction_state}{since},"
        f" producer {transaction.producer_id} (epoch {transaction.producer_epoch}),"
        f" timeout {duration_text(transaction.transaction_timeout_ms / 1000)}"
    )
    for topic, number in parts_in(transaction):
        typer.echo(f"  {topic}-{number}")


async def show_hanging(
    bootstrap: str, topics: Sequence[str], longer_than_ms: int, *, as_json: bool
) -> int:
    """Print the transactions that are open in logs for longer than this but that no coordinator has."""
    now_ms = time.time_ns() // 1_000_000
    async with connected(bootstrap) as client:
        parts = parts_of(await describe(client, topics or None))
        candidates = [
            each
            for each in await open_in_logs(client, parts)
            if now_ms - each.last_append_ms > longer_than_ms
        ]
        owners = await owners_of(client, candidates)
    hanging = [each for each in candidates if each not in owners]
    if as_json:
        print_json({"transactions": [_hanging_json(each) for each in hanging]})
    elif hanging:
        titles = ("partition", "start offset", "producer", "epoch", "idle for")
        print_table(titles, [_row(each, now_ms) for each in hanging], texts={"partition"})
        first = hanging[0]
        typer.echo(
            f"to abort one: kompakt transactions abort --partition {first.topic}-{first.partition}"
            f" --start-offset {first.start_offset}"
        )
    else:
        typer.echo("no transaction hangs")
    return 0


def _hanging_json(transaction: OpenTransaction) -> Json:
    return {
        "topic": transaction.topic,
        "partition": transaction.partition,
        "start_offset": transaction.start_offset,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator_epoch": transaction.coordinator_epoch,
        "last_append_ms": transaction.last_append_ms,
    }


def _row(transaction: OpenTransaction, now_ms: int) -> tuple[str, ...]:
    return (
        f"{transaction.topic}-{transaction.partition}",
        str(transaction.start_offset),
        str(transaction.producer_id),
        str(transaction.producer_epoch),
        duration_text((now_ms - transaction.last_append_ms) / 1000),
    )
