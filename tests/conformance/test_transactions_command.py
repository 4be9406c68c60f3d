"""`kompakt transactions ...` as an operator types it, beside real producers of a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from protocol.records.record_batch import Record, build_batch
from tests.harness.broker_process import BrokerProcess
from tests.harness.typed_commands import TypedCommands

TIMEOUT_MS = 60_000
HANGING_PRODUCER = 4711


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    overrides = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with BrokerProcess(tmp_path_factory.mktemp("transactions"), overrides) as broker:
        typed = TypedCommands(broker)
        typed.told("topics", "create", "orders", "--partitions", "2")
        leave_hanging(typed)
        yield typed


def leave_hanging(kompakt: TypedCommands) -> None:
    """Let a log have a transaction that no coordinator knows, as clients could leave behind: its
    batch stands in the log when the broker comes back."""
    kompakt.told("topics", "create", "hanging")
    kompakt.told("produce", "hanging", given="a\n")
    kompakt.broker.kill()
    batch = build_batch(
        [Record(offset=1, timestamp=1_700_000_000_000, key=b"k", value=b"v")],
        base_offset=1,
        leader_epoch=0,
        producer_id=HANGING_PRODUCER,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    with log_of(kompakt.broker, "hanging").open("ab") as log:
        log.write(batch)
    kompakt.broker.start()


def log_of(broker: BrokerProcess, topic: str) -> Path:
    (log,) = broker.data_dir.glob(f"{topic}.*/0/*.log")
    return log


@contextmanager
def open_transaction(kompakt: TypedCommands, transactional_id: str) -> Iterator[Producer]:
    """A producer that has written to both partitions, and has not ended its transaction."""
    producer = Producer(
        {
            "bootstrap.servers": kompakt.broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("orders", b"v", b"k", partition=partition)
    assert producer.flush(30) == 0
    yield producer


def listed(kompakt: TypedCommands, *options: str) -> dict[str, str]:
    """States by transactional id."""
    rows = kompakt.json("transactions", "list", *options)["transactions"]
    return {row["transactional_id"]: row["state"] for row in rows}


def test_a_transaction_is_listed_and_described_with_its_partitions(kompakt: TypedCommands) -> None:
    with open_transaction(kompakt, "shown") as producer:
        lines = kompakt.told("transactions", "list", "--state", "Ongoing").splitlines()
        assert lines[1].split()[:2] == ["shown", "Ongoing"]
        assert listed(kompakt, "--longer-than", "1h") == {}
        lines = kompakt.told("transactions", "describe", "shown").splitlines()
        assert lines[0].startswith("shown: Ongoing since 2")
        assert lines[0].endswith("(epoch 0), timeout 60.0 s")
        assert lines[1:] == ["  orders-0", "  orders-1"]
        (described,) = kompakt.json("transactions", "describe", "shown")["transactions"]
        assert (described["state"], described["timeout_ms"]) == ("Ongoing", TIMEOUT_MS)
        producer.commit_transaction(30)

    (described,) = kompakt.json("transactions", "describe", "shown")["transactions"]
    assert described["partitions"] == []


def test_a_transaction_is_aborted_when_it_is_executed_and_its_producer_is_fenced(
    kompakt: TypedCommands,
) -> None:
    with open_transaction(kompakt, "ended") as producer:
        said = kompakt.told("transactions", "abort", "ended")
        assert said == (
            "would abort the transaction of ended in 2 partitions: add --execute to abort it\n"
        )
        assert listed(kompakt)["ended"] == "Ongoing"

        said = kompakt.told("transactions", "abort", "ended", "--execute")

        assert said == "aborted the transaction of ended in 2 partitions\n"
        assert listed(kompakt)["ended"] == "Empty"
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)
        assert "has no open transaction" in kompakt.refused("transactions", "abort", "ended")


def test_one_that_the_coordinator_knows_is_not_ended_in_one_partition_alone(
    kompakt: TypedCommands,
) -> None:
    with open_transaction(kompakt, "whole") as producer:
        found = kompakt.json("transactions", "find-hanging", "orders", "--longer-than", "0s")
        assert found == {"transactions": []}
        said = kompakt.refused(
            "transactions", "abort", "--partition", "orders-0", "--start-offset", "99"
        )
        start = said.rpartition(" ")[2]
        said = kompakt.refused(
            "transactions", "abort", "--partition", "orders-0", "--start-offset", start
        )
        assert said == (
            "this transaction does not hang: abort all of it with kompakt transactions abort whole"
        )
        producer.abort_transaction(30)


def test_one_that_hangs_is_found_and_ended_when_it_is_executed(kompakt: TypedCommands) -> None:
    lines = kompakt.told("transactions", "find-hanging", "--longer-than", "0s").splitlines()
    assert lines[1].split()[:4] == ["hanging-0", "1", str(HANGING_PRODUCER), "3"]
    command = lines[2].removeprefix("to abort one: kompakt ").split()
    assert "would abort" in kompakt.told(*command)
    assert "hanging" in kompakt.told("transactions", "find-hanging", "--longer-than", "0s")

    said = kompakt.told(*command, "--execute")

    assert said == f"aborted the transaction of producer {HANGING_PRODUCER} in hanging-0\n"
    said = kompakt.told("transactions", "find-hanging", "--longer-than", "0s")
    assert said == "no transaction hangs\n"
    assert kompakt.told("consume", "hanging").splitlines() == ["a"]


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (("list", "--state", "Nonsense"), 2, "unknown state Nonsense"),
        (("list", "--longer-than", "long"), 2, "--longer-than long: write a span"),
        (("describe", "nobody"), 1, "there is no transactional id nobody"),
        (("abort",), 2, "give either an ID, or --partition and --start-offset"),
        (("abort", "x", "--start-offset", "1"), 2, "give either an ID"),
        (("abort", "--partition", "orders", "--start-offset", "1"), 2, "write TOPIC-NUMBER"),
        (("abort", "--partition", "nope-0", "--start-offset", "1"), 1, "there is no topic nope"),
        (("abort", "--partition", "orders-9", "--start-offset", "1"), 1, "orders-9: "),
        (("find-hanging", "nope"), 1, "there is no topic nope"),
    ],
)
def test_what_is_wrong_is_said(
    kompakt: TypedCommands, typed: tuple[str, ...], code: int, said: str
) -> None:
    assert said in kompakt.refused("transactions", *typed, code=code)
