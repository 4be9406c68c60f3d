"""A consumer restores a compacted topic, and its progress reaches exactly 100 %."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from metrics.collector import CACHE_SECONDS
from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.typed_commands import TypedCommands

KEYS = 40
ROUNDS = 25
POLLS_MAX = 60

Json = dict[str, Any]


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    """`table` has a thousand offsets and 40 records, a transaction with its marker at the end, and
    aborted records that no pass has seen."""
    overrides = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with BrokerProcess(tmp_path_factory.mktemp("lag"), overrides) as broker:
        typed = TypedCommands(broker)
        typed.told("topics", "create", "table", "--compact", "--config", "segment.bytes=1048576")
        plain = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        for number in range(KEYS * ROUNDS):
            plain.produce("table", key=b"%d" % (number * 7 % KEYS), value=bytes(3000))
            plain.flush(30)
        typed.told("compact", "now", "table")
        transactional = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}
        )
        transactional.init_transactions(30)
        for is_commit in (False, True):
            transactional.begin_transaction()
            for number in range(5):
                transactional.produce("table", key=b"%d" % number, value=b"new")
            transactional.flush(30)
            (transactional.commit_transaction if is_commit else transactional.abort_transaction)(30)
        yield typed


@contextmanager
def restoring(kompakt: TypedCommands, group: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": kompakt.broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["table"])
    try:
        yield consumer
    finally:
        consumer.close()


def next_record(consumer: Consumer) -> Message | None:
    """Returns the next record; None at the end of the partition."""
    for _ in range(POLLS_MAX):
        message = consumer.poll(1.0)
        if message is not None:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return None
            assert error is None, error
            return message
    raise AssertionError("neither a record came nor the end")


def described(kompakt: TypedCommands, group: str) -> Json:
    (found,) = kompakt.json("groups", "describe", group)["groups"]
    assert isinstance(found, dict)
    return found


def test_the_progress_of_a_restore_is_that_of_the_records_and_ends_at_100_percent(
    kompakt: TypedCommands,
) -> None:
    lags: list[tuple[int, int]] = []
    group: Json = {}
    with restoring(kompakt, "restore") as consumer:
        while (message := next_record(consumer)) is not None:
            consumer.commit(message, asynchronous=False)
            group = described(kompakt, "restore")
            assert group["record_lag_is_exact"]
            lags.append((group["record_lag"], group["lag"]))
        shown = kompakt.told("groups", "describe", "restore").splitlines()

    # The aborted records count, although this consumer does not get them.
    records = group["records"]
    assert len(lags) + 5 == records
    assert [records - lag for lag, _ in lags][:3] == [1, 2, 3]
    assert sorted(lags, reverse=True) == lags
    assert lags[-1] == (0, 1), "the marker at the end has an offset and is no record"
    assert shown[-1] == f"record lag 0 of {records} records: 100 % read"
    time.sleep(CACHE_SECONDS)
    metrics = kompakt.broker.metrics()
    assert samples(metrics, "kompakt_group_record_lag", consumergroup="restore") == [0]
    assert samples(metrics, "kompakt_group_record_lag_sum", consumergroup="restore") == [0]
    assert samples(metrics, "kompakt_topic_records", topic="table") == [records]


def test_a_topic_shows_its_records_and_the_first_of_them(kompakt: TypedCommands) -> None:
    (topic,) = kompakt.json("topics", "describe", "table")["topics"]
    (part,) = topic["partitions"]
    with restoring(kompakt, "counting") as consumer:
        first = next_record(consumer)
    lines = kompakt.told("topics", "describe", "table").splitlines()

    assert first is not None
    assert part["first_live_offset"] == first.offset() > 0
    assert topic["records"] == {"records": part["records"], "is_exact": True}
    row = ["0", "1", "0", str(first.offset()), str(part["end_offset"])]
    assert lines[-2].split()[:5] == row
    assert lines[-2].split()[6] == str(part["records"])
    assert max(map(len, lines)) <= 80


def test_without_the_http_listener_there_is_a_dash_and_the_reason(kompakt: TypedCommands) -> None:
    with restoring(kompakt, "unknown") as consumer:
        message = next_record(consumer)
        assert message is not None
        consumer.commit(message, asynchronous=False)
    nowhere = ("--url", "http://127.0.0.1:1")

    group = kompakt.told("groups", "describe", "unknown", *nowhere).splitlines()
    (group_json,) = kompakt.json("groups", "describe", "unknown", *nowhere)["groups"]
    topic = kompakt.told("topics", "describe", "table", *nowhere)
    (topic_json,) = kompakt.json("topics", "describe", "table", *nowhere)["topics"]

    assert group[2].split()[4] == "-"
    assert group[-1].startswith("record lag: not known: no broker answers")
    assert group_json["record_lag"] is None
    assert "no broker answers" in group_json["record_lag_error"]
    assert group_json["partitions"][0]["record_lag"] is None
    assert "records: not known: no broker answers" in topic
    assert topic_json["partitions"][0]["records"] is None
    assert "no broker answers" in topic_json["records"]["error"]
