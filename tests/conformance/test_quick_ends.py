"""Real clients whose transactions end one right after the other are never fenced.

With version 2 of transactions (KIP-890) a client hears that its transaction is decided, and its next
epoch, before the markers are written. It may end the next transaction, and that one is empty or
short, while they still are.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.member_program import QUICK_TRANSACTIONS, ProgramUnavailable
from tests.harness.transaction_java import transactions_command

ROUNDS = 60
SECONDS_MAX = 180


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("quick"), {}) as process:
        yield process


def by_confluent(bootstrap: str, transactional_id: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    for each in range(ROUNDS):
        producer.begin_transaction()
        producer.produce(topic, f"commit-{each}")
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, f"abort-{each}")
        producer.flush(30)
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, f"quick-{each}")
        producer.abort_transaction(30)


def by_java(bootstrap: str, transactional_id: str, topic: str) -> None:
    try:
        command = transactions_command("4.3")
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    run([*command, bootstrap, "quick", transactional_id, topic, str(ROUNDS)])


def by_franz_go(bootstrap: str, transactional_id: str, topic: str) -> None:
    try:
        command = QUICK_TRANSACTIONS.command()
    except ProgramUnavailable as missing:
        pytest.skip(str(missing))
    run([*command, bootstrap, transactional_id, topic, str(ROUNDS)])


def run(command: list[str]) -> None:
    """Run a client to its end, which must be a good one."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("client", [by_confluent, by_java, by_franz_go])
def test_a_producer_is_never_fenced_by_its_own_quick_ends(
    quick_broker: BrokerProcess, client: Callable[[str, str, str], None]
) -> None:
    name = client.__name__
    bootstrap = quick_broker.bootstrap_servers
    create_topic(bootstrap, name)
    client(bootstrap, f"quick-{name}", name)
    # A reader of committed records, as it is by default.
    values = [value for *_, value in ConfluentClient().consume(bootstrap, [name])]
    assert values == [f"commit-{each}".encode() for each in range(ROUNDS)]
