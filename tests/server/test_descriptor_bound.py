"""A real broker with fewer descriptors than partitions serves all partitions.

With 10,000 partitions, all written to, and a limit of 1024, about 290 files were open. The numbers here
are smaller to keep the test short.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient, create_topic

PARTITIONS, DESCRIPTORS = 600, 400
TOPIC = "wide"


class LimitedBroker(BrokerProcess):
    """A broker with a low limit of descriptors, including sockets."""

    __slots__ = ()

    def command(self) -> list[str]:
        limit = f'ulimit -n {DESCRIPTORS} && exec "$@"'
        return ["sh", "-c", limit, "sh", *super().command()]


@pytest.mark.crash
@pytest.mark.parametrize("flush_on_acks_all", ["true", "false"])
def test_more_partitions_than_descriptors_are_written_read_and_recovered(
    tmp_path: Path, flush_on_acks_all: str
) -> None:
    overrides = {"flush.on.acks.all": flush_on_acks_all, "log.cleaner.enable": "false"}
    with LimitedBroker(tmp_path, overrides) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        for round_ in range(1, 4):
            produce_to_every_partition(broker)
            assert records_by_partition(broker) == dict.fromkeys(range(PARTITIONS), round_)
            if round_ == 2:
                broker.kill()
                broker.start()
    assert "Too many open files" not in broker.tail()


def produce_to_every_partition(broker: BrokerProcess) -> None:
    refused: list[object] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 30_000}
    producer = Producer(settings)
    for partition in range(PARTITIONS):
        producer.produce(
            TOPIC,
            value=b"value",
            partition=partition,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not refused, refused[0]


def records_by_partition(broker: BrokerProcess) -> dict[int, int]:
    found = dict.fromkeys(range(PARTITIONS), 0)
    for _, partition, _, _, _ in ConfluentClient().consume(broker.bootstrap_servers, [TOPIC]):
        found[partition] += 1
    return found
