"""Transactions with real clients: what one commits and aborts, and what each is given of it.

Kills are in `tests/crash/test_transaction_histories.py`; here a client's own failure has its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import or_skip
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.transaction_checker import violations
from tests.harness.transaction_history import Outcome
from tests.harness.transaction_plan import PARTITIONS, WITHOUT_STABLE_OFFSETS, Plan, Work
from tests.harness.transaction_run import BROKER_CONFIG, TransactionRun

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "java-3.9", "java-4.3")


@pytest.fixture(scope="module")
def transactions_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of this file's own, whose cleaner never rests."""
    with BrokerProcess(tmp_path_factory.mktemp("transactions"), BROKER_CONFIG) as process:
        yield process


@pytest.mark.parametrize("client", CLIENTS)
def test_two_groups_copy_every_committed_record_once_and_abort_some_attempts(
    transactions_broker: BrokerProcess, tmp_path: Path, client: str
) -> None:
    or_skip(client)
    run = TransactionRun(
        tmp_path,
        transactions_broker,
        plan_for(client),
        clean=lambda topic: wait_until_clean(f"127.0.0.1:{transactions_broker.http_port}", topic),
        readers=(client,),
    )
    history = run.run()
    assert [str(each) for each in violations(history)] == []
    by_workers = [each for each in history.transactions.values() if each.group]
    assert {each.outcome for each in by_workers} == {Outcome.COMMITTED, Outcome.ABORTED}
    # The feeder is confluent-kafka's. Where it aborts before a partition is in the transaction, it asks
    # the broker to end one that has not begun, gets INVALID_TXN_STATE (as from Kafka), and gives up.
    failed = [each.lives - each.stalls - 1 for each in run.programs[1:]]
    assert not any(failed), run.summary()
    # kafka-python 3 misses a wake-up of its network thread now and then, and waits for ever.
    assert client == "kafka-python" or not any(each.stalls for each in run.programs[1:])


def plan_for(client: str) -> Plan:
    """A group whose program takes all partitions, and one that gives them to its member if it can."""
    number = CLIENTS.index(client)
    everything = tuple(range(PARTITIONS))
    works = [Work("confluent-kafka", "-", ()), Work(client, f"alone-{number}", everything)]
    if client not in WITHOUT_STABLE_OFFSETS:
        works += [Work(client, f"shared-{number}", everything, is_member=True)]
    return Plan(number, tuple(works), ())
