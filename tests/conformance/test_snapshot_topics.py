"""Unmodified clients read a topic in a snapshot to its end, also after later writes and cleaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from tests.harness.asked_broker import clean_now, make_snapshot
from tests.harness.broker_process import BrokerProcess
from tests.harness.client_record import ConsumedRecord
from tests.harness.clients import CLIENT_NAMES, Client, create_topic
from tests.harness.member_program import READER_PROGRAMS, ProgramUnavailable, read_to_the_end

TOPIC = "accounts"
RECORDS = 500
KEYS = 20


class Kept:
    """A broker with a snapshot of a topic, which went on afterwards."""

    def __init__(self, broker: BrokerProcess, snapshot_id: str) -> None:
        self.broker = broker
        self.name = f"{TOPIC}.snapshot-{snapshot_id}"
        self.expected: list[ConsumedRecord] = [
            (self.name, 0, number, b"key-%d" % (number % KEYS), b"%d" % number)
            for number in range(RECORDS)
        ]


def write(producer: Producer, first: int) -> None:
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, key=b"key-%d" % (number % KEYS), value=b"%d" % number, partition=0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """The topic is cleaned after the snapshot: only one record of each key is left of it."""
    with BrokerProcess(tmp_path_factory.mktemp("kept"), {"view.list": "true"}) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, config={"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        write(producer, 0)
        snapshot_id = make_snapshot(broker, TOPIC)
        write(producer, RECORDS)
        clean_now(broker, TOPIC)
        yield Kept(broker, snapshot_id)


@pytest.mark.parametrize("reader", CLIENT_NAMES)
def test_each_client_reads_what_the_topic_had(
    reader: str, kept: Kept, clients: Mapping[str, Client]
) -> None:
    read = list(clients[reader].consume(kept.broker.bootstrap_servers, [kept.name]))

    assert read == kept.expected


@pytest.mark.parametrize("reader", READER_PROGRAMS)
def test_clients_in_other_languages_read_it(reader: str, kept: Kept) -> None:
    try:
        read = read_to_the_end(reader, kept.broker.bootstrap_servers, [kept.name])
    except ProgramUnavailable as missing:
        pytest.skip(str(missing))

    assert read == kept.expected
