"""Every client writes with every codec, and every client reads what every other wrote."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from itertools import groupby

import pytest

from tests.harness.client_record import KeyedRecord
from tests.harness.clients import CODECS, Client, create_topic
from tests.harness.raw_connection import RawConnection, all_batches, codec_bits

RECORDS_EACH = 200
TEXT = b"a value that every codec makes smaller; "


def records_of(producer: str) -> list[KeyedRecord]:
    """Keys say who wrote them."""
    numbered = (f"{producer} {number:04d}".encode() for number in range(RECORDS_EACH))
    return [(key, TEXT * 5 + key) for key in numbered]


@pytest.fixture(scope="module")
def topics(bootstrap: str, clients: Mapping[str, Client]) -> dict[str, str]:
    """Topic -> codec; into each, every client has written with that codec."""
    run = uuid.uuid4().hex[:8]
    codecs = {f"codec-{codec}-{run}": codec for codec in CODECS}
    for topic in codecs:
        create_topic(bootstrap, topic)
    for name, client in clients.items():
        client.produce(bootstrap, codecs, records_of(name))
    return codecs


READERS = ["confluent-kafka", "kafka-python", "aiokafka", "kcat", "java-3.9", "java-4.3"]


@pytest.mark.parametrize("reader", READERS)
def test_each_client_reads_what_every_client_wrote_with_every_codec(
    reader: str, bootstrap: str, clients: Mapping[str, Client], topics: Mapping[str, str]
) -> None:
    consumed = list(clients[reader].consume(bootstrap, list(topics)))

    written = sorted(record for name in clients for record in records_of(name))
    by_topic = groupby(sorted(consumed), key=lambda record: record[0])
    read = {topic: list(records) for topic, records in by_topic}
    assert read.keys() == topics.keys()
    for topic, records in read.items():
        assert sorted((key, value) for *_, key, value in records) == written, topics[topic]
        assert [offset for _, _, offset, *_ in records] == list(range(len(written)))


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_stored_with_the_codec_that_was_asked_for(
    codec: str, port: int, topics: Mapping[str, str]
) -> None:
    """A client that does not find what it needs in ApiVersions sends uncompressed, silently."""
    (topic,) = (topic for topic, used in topics.items() if used == codec)

    with RawConnection(port) as connection:
        batches = all_batches(connection, topic)

    wrong = [batch for batch in batches if codec_bits(batch) != CODECS.index(codec)]
    assert [(codec_bits(batch), batch[:400]) for batch in wrong] == []
    assert len(batches) >= 6, "each client wrote at least one batch"


@pytest.fixture(scope="module")
def recompressed(bootstrap: str, clients: Mapping[str, Client]) -> dict[str, str]:
    """Topic -> the codec that the broker stores there; clients have written with every codec."""
    run = uuid.uuid4().hex[:8]
    topics = {f"stored-{codec}-{run}": codec for codec in CODECS}
    for topic, codec in topics.items():
        wanted = "uncompressed" if codec == "none" else codec
        level = {"compression.lz4.level": "12"} if codec == "lz4" else {}
        create_topic(bootstrap, topic, config={"compression.type": wanted, **level})
    for name, sent in zip(("confluent-kafka", "kafka-python", "aiokafka"), CODECS, strict=False):
        clients[name].produce(bootstrap, dict.fromkeys(topics, sent), records_of(name))
    return topics


@pytest.mark.parametrize("reader", READERS)
def test_each_client_reads_what_the_broker_compressed_anew(
    reader: str, bootstrap: str, clients: Mapping[str, Client], recompressed: Mapping[str, str]
) -> None:
    writers = ("confluent-kafka", "kafka-python", "aiokafka")
    written = sorted(record for name in writers for record in records_of(name))

    consumed = list(clients[reader].consume(bootstrap, list(recompressed)))

    for topic in recompressed:
        assert sorted(record[3:5] for record in consumed if record[0] == topic) == written, topic


def test_batches_are_stored_with_the_codec_of_the_topic(
    port: int, recompressed: Mapping[str, str]
) -> None:
    with RawConnection(port) as connection:
        for topic, codec in recompressed.items():
            stored = {codec_bits(batch) for batch in all_batches(connection, topic)}
            assert stored == {CODECS.index(codec)}, topic
