"""A million records: none lost, none twice, and cleaning changes no offset."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.client_record import ConsumedRecord
from tests.harness.clients import CLIENT_NAMES, Client, create_topic

RECORDS = 1_000_000
KEYS = 50_000
PARTITIONS = 2
TOPIC = "million"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What was produced, by the place the broker acknowledged it at."""

    sequences: tuple[array[int], ...]
    """Partition -> offset -> the number of the record that lies there."""

    def record(self, partition: int, offset: int) -> tuple[bytes, bytes]:
        return record(self.sequences[partition][offset])

    def last_offsets(self) -> dict[bytes, tuple[int, int]]:
        """Key -> partition and offset of its last record."""
        return {
            key_of(sequence): (partition, offset)
            for partition, sequences in enumerate(self.sequences)
            for offset, sequence in enumerate(sequences)
        }


def key_of(sequence: int) -> bytes:
    """Ten bytes; the keys come in an order that spreads each over the whole log."""
    return b"key-%06d" % (sequence * 7919 % KEYS)


def record(sequence: int) -> tuple[bytes, bytes]:
    """100 bytes of key and value, different for each number."""
    return key_of(sequence), b"value %010d of one hundred bytes " % sequence + FILL


FILL = bytes(range(32, 84))
assert sum(map(len, record(0))) == 100


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Its cleaner is off until the log has been read whole."""
    overrides = {"log.cleaner.enable": "false", "log.cleaner.backoff.ms": "100"}
    with BrokerProcess(tmp_path_factory.mktemp("million"), overrides) as process:
        yield process


@pytest.fixture(scope="module")
def acknowledged(own_broker: BrokerProcess) -> Acknowledged:
    """Produce with confluent-kafka's defaults."""
    config = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20), "segment.ms": "2000"}
    config["min.cleanable.dirty.ratio"] = "0"
    create_topic(own_broker.bootstrap_servers, TOPIC, partitions=PARTITIONS, config=config)
    places = array("q", [-1]) * RECORDS
    producer = Producer({"bootstrap.servers": own_broker.bootstrap_servers})
    for sequence in range(RECORDS):
        send(producer, sequence, places)
    assert producer.flush(60) == 0
    return by_place(places)


def send(producer: Producer, sequence: int, places: array[int]) -> None:
    """Give one record to the producer; its acknowledged place ends up in `places`."""

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        places[sequence] = message.offset() * PARTITIONS + message.partition()  # type: ignore[attr-defined]

    key, value = record(sequence)
    while True:
        try:
            producer.produce(TOPIC, key=key, value=value, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        else:
            producer.poll(0)
            return


def by_place(places: array[int]) -> Acknowledged:
    """Turn sequence -> place round; the acknowledged offsets are dense."""
    sizes = [
        sum(place % PARTITIONS == partition for place in places) for partition in range(PARTITIONS)
    ]
    sequences = tuple(array("q", [-1]) * size for size in sizes)
    for sequence, place in enumerate(places):
        offset, partition = divmod(place, PARTITIONS)
        assert sequences[partition][offset] == -1, "two records at one offset"
        sequences[partition][offset] = sequence
    return Acknowledged(sequences)


def read_checked(
    consumed: Iterable[ConsumedRecord], acknowledged: Acknowledged
) -> tuple[bytearray, ...]:
    """Which offsets were read, each at most once, in order, each with what was produced there."""
    seen = tuple(bytearray(len(sequences)) for sequences in acknowledged.sequences)
    positions = [-1] * PARTITIONS
    for _, partition, offset, key, value in consumed:
        assert (key, value) == acknowledged.record(partition, offset)
        assert offset > positions[partition]
        positions[partition] = offset
        seen[partition][offset] = 1
    return seen


def test_a_million_records_come_back_whole_before_cleaning_and_unmoved_after(
    own_broker: BrokerProcess, acknowledged: Acknowledged, clients: Mapping[str, Client]
) -> None:
    bootstrap = own_broker.bootstrap_servers
    whole = tuple(bytearray(b"\1" * len(sequences)) for sequences in acknowledged.sequences)

    for name in CLIENT_NAMES:
        assert read_checked(clients[name].consume(bootstrap, [TOPIC]), acknowledged) == whole, name

    own_broker.overrides["log.cleaner.enable"] = "true"
    own_broker.restart()
    wait_until_clean(f"127.0.0.1:{own_broker.http_port}", TOPIC)

    survivors = read_checked(clients["confluent-kafka"].consume(bootstrap, [TOPIC]), acknowledged)
    assert KEYS <= sum(map(sum, survivors)) <= KEYS + PARTITIONS
    for partition, offset in acknowledged.last_offsets().values():
        assert survivors[partition][offset]
    for name in CLIENT_NAMES:
        found = read_checked(clients[name].consume(bootstrap, [TOPIC]), acknowledged)
        assert found == survivors, name
