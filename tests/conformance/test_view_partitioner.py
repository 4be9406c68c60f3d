"""With `view.partitioner` a get finds each key where the clients with that partitioner have sent it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic

KEYS = [b"k", b"ada", b"bob@example.org", b"0123456789abcdef", *(b"key-%d" % n for n in range(60))]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("view")) as running:
        yield running


def by_confluent(partitioner: str) -> Callable[[str, str, Sequence[bytes]], None]:
    def send(bootstrap: str, topic: str, keys: Sequence[bytes]) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "partitioner": partitioner})
        for key in keys:
            producer.produce(topic, key=key, value=key)
        assert producer.flush(60) == 0

    return send


def by_kafka_python(bootstrap: str, topic: str, keys: Sequence[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for key in keys:
        producer.send(topic, key=key, value=key)
    producer.flush()
    producer.close()


@pytest.mark.parametrize(
    ("topic", "partitioner", "send"),
    [
        ("default", "crc32", by_confluent("consistent_random")),
        ("consistent", "crc32", by_confluent("consistent")),
        ("like-java", "murmur2", by_confluent("murmur2_random")),
        ("python", "murmur2", by_kafka_python),
    ],
)
def test_each_key_is_found_in_the_partition_that_the_client_has_chosen(
    broker: BrokerProcess,
    topic: str,
    partitioner: str,
    send: Callable[[str, str, Sequence[bytes]], None],
) -> None:
    config = {"cleanup.policy": "compact", "view.partitioner": partitioner}
    create_topic(broker.bootstrap_servers, topic, partitions=7, config=config)
    send(broker.bootstrap_servers, topic, KEYS)

    body = json.dumps({"keys": [key.decode() for key in KEYS]}).encode()
    url = f"http://127.0.0.1:{broker.http_port}/v1/topics/{topic}/keys:batch"
    with urllib.request.urlopen(url, body) as answer:
        records = json.load(answer)["records"]

    assert [each.get("value") for each in records] == [key.decode() for key in KEYS]
    assert len({each["partition"] for each in records}) == 7
