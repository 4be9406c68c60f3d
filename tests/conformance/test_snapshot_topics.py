"""Unmodified clients read a topic in a snapshot and its last values to their end.

Also after later writes and cleaning.
"""

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
WRITTEN: list[tuple[bytes, bytes | None]] = [
    (b"key-%d" % (number % KEYS), b"%d" % number) for number in range(RECORDS)
]
WRITTEN.insert(RECORDS - 5, (b"key-7", None))
"""The records before the snapshot. Some programs end at the last offset, so it has a value."""


class Kept:
    """A broker with a snapshot of a topic, which went on afterwards."""

    def __init__(self, broker: BrokerProcess, snapshot_id: str) -> None:
        self.broker = broker
        topic = f"{TOPIC}.snapshot-{snapshot_id}"
        view = f"{topic}.latest"
        last = {key: offset for offset, (key, _) in enumerate(WRITTEN)}
        self.expected: Mapping[str, list[ConsumedRecord]] = {
            topic: [(topic, 0, offset, *each) for offset, each in enumerate(WRITTEN)],
            view: [
                (view, 0, offset, *WRITTEN[offset])
                for offset in sorted(last.values())
                if WRITTEN[offset][1] is not None
            ],
        }
        """What clients read of both topics, by their names."""


def write(producer: Producer) -> None:
    for key, value in WRITTEN:
        producer.produce(TOPIC, key=key, value=value, partition=0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """The topic is cleaned after the snapshot: only one record of each key is left of it."""
    with BrokerProcess(tmp_path_factory.mktemp("kept"), {"view.list": "true"}) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, config={"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        write(producer)
        snapshot_id = make_snapshot(broker, TOPIC)
        write(producer)
        clean_now(broker, TOPIC)
        yield Kept(broker, snapshot_id)


@pytest.mark.parametrize("reader", CLIENT_NAMES)
def test_each_client_reads_what_the_topic_had(
    reader: str, kept: Kept, clients: Mapping[str, Client]
) -> None:
    for name, expected in kept.expected.items():
        read = list(clients[reader].consume(kept.broker.bootstrap_servers, [name]))

        assert read == expected


@pytest.mark.parametrize("reader", READER_PROGRAMS)
def test_clients_in_other_languages_read_it(reader: str, kept: Kept) -> None:
    for name, expected in kept.expected.items():
        try:
            read = read_to_the_end(reader, kept.broker.bootstrap_servers, [name])
        except ProgramUnavailable as missing:
            pytest.skip(str(missing))

        # The programs print no value as an empty one.
        assert read == [(*each[:4], each[4] or b"") for each in expected]
