"""A task's records are written in one transaction, once, also if the task dies or is repeated."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from pipeline.load import transaction
from pipeline.load.transaction import LoadFailed, LoadRecord, Target, write_once
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient, create_topic

TOPIC = "prices"
RECORDS = [
    LoadRecord(b"a", b"1", None, "new"),
    LoadRecord(b"b", b"2", 1, "changed"),
    LoadRecord(b"c", None, 0, "deleted"),
]
COUNTS = Counter(new=1, changed=1, deleted=1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def target(broker: BrokerProcess, request: pytest.FixtureRequest) -> Target:
    topic = re.sub("[^a-z0-9]+", "-", f"{TOPIC}-{request.node.name}")[:80]
    create_topic(
        broker.bootstrap_servers, topic, partitions=2, config={"cleanup.policy": "compact"}
    )
    return Target(bootstrap_servers=broker.bootstrap_servers, topic=topic, run="first")


def read(target: Target) -> list[tuple[int, bytes | None, bytes | None]]:
    """Returns the partition, key and value of each committed record."""
    found = ConfluentClient().consume(target.bootstrap_servers, [target.topic])
    return sorted((partition, key, value) for _, partition, _, key, value in found)


def test_records_go_to_the_partition_that_they_name(target: Target) -> None:
    assert write_once(target, 0, RECORDS) == COUNTS
    assert read(target) == [(0, b"a", b"1"), (0, b"c", None), (1, b"b", b"2")]


def test_others_go_where_the_java_client_sends_their_keys(target: Target) -> None:
    keys = [b"key %d" % number for number in range(50)]
    write_once(target, 0, [LoadRecord(key, b"v", None, "new") for key in keys])
    ours = read(target)
    as_java = {"bootstrap.servers": target.bootstrap_servers, "partitioner": "murmur2"}
    producer = Producer(as_java)
    for key in keys:
        producer.produce(target.topic, key=key, value=b"v")
    assert producer.flush(30) == 0
    assert read(target) == sorted([*ours, *ours])


def test_a_task_that_has_committed_is_not_written_again(target: Target) -> None:
    write_once(target, 3, RECORDS)
    before = read(target)

    def none() -> Iterator[LoadRecord]:
        raise AssertionError("a task that is done reads its records")
        yield

    assert write_once(target, 3, none()) == COUNTS
    assert read(target) == before


def test_another_task_and_another_run_are_written(target: Target) -> None:
    write_once(target, 0, RECORDS)
    write_once(target, 1, RECORDS)
    write_once(replace(target, run="second"), 0, RECORDS)
    assert len(read(target)) == 9


def test_what_a_dead_attempt_has_left_open_is_aborted(target: Target) -> None:
    dead = transaction.producer_of(target, 0)
    dead.init_transactions()
    dead.begin_transaction()
    transaction.send(dead, target.topic, RECORDS)
    assert write_once(target, 0, RECORDS[:1]) == Counter(new=1)
    assert read(target) == [(0, b"a", b"1")]
    dead.close(timeout=0)


def test_an_attempt_that_has_been_overtaken_says_so_and_writes_nothing(target: Target) -> None:
    def overtaken() -> Iterator[LoadRecord]:
        yield RECORDS[0]
        write_once(replace(target, run="second"), 0, RECORDS[1:])

    with pytest.raises(LoadFailed, match=r"another load of .* has begun, and ended this one"):
        write_once(target, 0, overtaken())
    assert read(target) == [(0, b"c", None), (1, b"b", b"2")]


def test_an_error_among_the_records_aborts_the_transaction(target: Target) -> None:
    def broken() -> Iterator[LoadRecord]:
        yield RECORDS[0]
        raise ValueError("no more rows")

    with pytest.raises(ValueError, match="no more rows"):
        write_once(target, 0, broken())
    assert read(target) == []
    assert write_once(target, 0, RECORDS) == COUNTS


def test_a_record_that_the_broker_refuses_ends_the_task(target: Target) -> None:
    large = LoadRecord(b"large", b"x" * 2_000_000, None, "new")
    with pytest.raises(LoadFailed, match=f"{target.topic} at .*[Ll]arge"):
        write_once(target, 0, [RECORDS[0], large])
    assert read(target) == []


def test_acknowledgements_are_waited_for_before_the_memory_has_too_many(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PENDING_BYTES_MAX", 100)
    settled: list[int] = []

    def settle(producer: object, pending: list[object]) -> None:
        settled.append(len(pending))
        original(producer, pending)

    original = transaction.settle
    monkeypatch.setattr(transaction, "settle", settle)
    many = [LoadRecord(b"k%d" % n, b"v" * 48, None, "new") for n in range(7)]
    assert write_once(target, 0, many) == Counter(new=7)
    assert settled == [2, 2, 2, 1]
    assert len(read(target)) == 7


@pytest.mark.parametrize("silent_at", ["send_offsets_to_transaction", "commit_transaction"])
def test_a_broker_that_no_longer_answers_ends_the_task(
    broker: BrokerProcess, target: Target, monkeypatch: pytest.MonkeyPatch, silent_at: str
) -> None:
    """It hangs as the call begins. The next attempt knows what is committed."""
    call = getattr(KafkaProducer, silent_at)

    def hang(producer: KafkaProducer, *others: object) -> None:
        os.kill(broker.pid, signal.SIGSTOP)
        call(producer, *others)

    with monkeypatch.context() as patched:
        patched.setattr(transaction, "ANSWER_SECONDS_MAX", 1.0)
        patched.setattr(KafkaProducer, silent_at, hang)
        try:
            with pytest.raises(LoadFailed, match="the broker has not answered for 1 s; load again"):
                write_once(target, 0, RECORDS)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
    assert write_once(target, 0, RECORDS) == COUNTS
    assert len(read(target)) == len(RECORDS)
