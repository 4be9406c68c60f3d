"""Real, unmodified Kafka clients behind one small interface: produce, and read to the end.

They read with `assign`, without a consumer group. A reader that does not reach the end position within
`SECONDS_MAX` raises `TimeoutError`, so that a hang is reported and does not block the test.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.client_record import ConsumedRecord, KeyedRecord
from tests.harness.java_client import RELEASES, JavaClient

with warnings.catch_warnings():
    # kafka-python reads its schemas with a Python API that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PyTopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS_MAX = 300.0
RECORDS_A_CALL = 10_000


class Client(Protocol):
    """What every client must implement."""

    name: str

    def produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Iterable[KeyedRecord]
    ) -> None:
        """Send the records to every topic of `codecs`, with its codec; all must be acknowledged."""

    def consume(self, bootstrap: str, topics: Sequence[str]) -> Iterator[ConsumedRecord]:
        """Yields every record from the start to the end offset that each partition has at the call."""


class ConfluentClient:
    """confluent-kafka, the wrapper of a current librdkafka."""

    name = "confluent-kafka"

    def produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Iterable[KeyedRecord]
    ) -> None:
        kept = list(records)
        for topic, codec in codecs.items():
            settings = {"bootstrap.servers": bootstrap, "compression.type": codec}
            deliver_all(Producer(settings), topic, kept)

    def consume(self, bootstrap: str, topics: Sequence[str]) -> Iterator[ConsumedRecord]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused: partitions are assigned",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            parts = [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in topics
                for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions
            ]
            ends = {
                (part.topic, part.partition): consumer.get_watermark_offsets(part, timeout=10)[1]
                for part in parts
            }
            consumer.assign(parts)
            yield from self._read_to(consumer, ends)
        finally:
            consumer.close()

    def _read_to(
        self, consumer: Any, ends: Mapping[tuple[str, int], int]
    ) -> Iterator[ConsumedRecord]:
        """Read up to the ends. A partition that grows meanwhile reports its end more than once."""
        deadline = deadline_of(self.name)
        behind = {place for place, end in ends.items() if end > 0}
        while behind:
            deadline()
            for message in consumer.consume(RECORDS_A_CALL, timeout=0.2):
                error = message.error()
                place = (message.topic(), message.partition())
                if error is None:
                    if place in behind or message.offset() < ends[place]:
                        yield (*place, message.offset(), message.key(), message.value())
                    if message.offset() + 1 >= ends[place]:
                        behind.discard(place)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= ends[place]:
                        behind.discard(place)
                elif not error.retriable():
                    raise AssertionError(f"{self.name}: {error}")


def deliver_all(producer: Any, topic: str, records: Iterable[KeyedRecord]) -> None:
    """Produce and flush. Raises unless every record was acknowledged."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    for key, value in records:
        produce_when_there_is_room(producer, topic, key=key, value=value, on_delivery=delivered)
    left = producer.flush(SECONDS_MAX)
    assert left == 0, f"confluent-kafka: {left} records were not delivered in time"
    assert not refused, f"confluent-kafka: {len(refused)} records refused: {refused[0]}"


def produce_when_there_is_room(producer: Any, topic: str, **record: Any) -> None:
    """Call `Producer.produce`, and wait while its queue is full."""
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


class KafkaPythonClient:
    """kafka-python, pure Python."""

    name = "kafka-python"

    def produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Iterable[KeyedRecord]
    ) -> None:
        kept = list(records)
        for topic, codec in codecs.items():
            producer = KafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
            )
            try:
                futures = [producer.send(topic, key=key, value=value) for key, value in kept]
                producer.flush(timeout=SECONDS_MAX)
                for future in futures:
                    future.get(timeout=1)
            finally:
                producer.close(timeout=10)

    def consume(self, bootstrap: str, topics: Sequence[str]) -> Iterator[ConsumedRecord]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none"
        )
        try:
            parts = [
                PyTopicPartition(topic, partition)
                for topic in topics
                for partition in sorted(consumer.partitions_for_topic(topic) or ())
            ]
            consumer.assign(parts)
            consumer.seek_to_beginning(*parts)
            yield from self._read_to(consumer, consumer.end_offsets(parts))
        finally:
            consumer.close()

    def _read_to(self, consumer: Any, ends: Mapping[Any, int]) -> Iterator[ConsumedRecord]:
        deadline = deadline_of(self.name)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            deadline()
            for batch in consumer.poll(timeout_ms=200, max_records=RECORDS_A_CALL).values():
                for record in batch:
                    place = (record.topic, record.partition, record.offset)
                    yield (*place, record.key, record.value)


class AiokafkaClient:
    """aiokafka, on its own event loop."""

    name = "aiokafka"

    def produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Iterable[KeyedRecord]
    ) -> None:
        asyncio.run(self._produce(bootstrap, codecs, list(records)))

    async def _produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Sequence[KeyedRecord]
    ) -> None:
        for topic, codec in codecs.items():
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
            )
            await producer.start()
            try:
                sent = [await producer.send(topic, value, key) for key, value in records]
                await asyncio.wait_for(asyncio.gather(*sent), SECONDS_MAX)
            finally:
                await producer.stop()

    def consume(self, bootstrap: str, topics: Sequence[str]) -> Iterator[ConsumedRecord]:
        with asyncio.Runner() as runner:
            consumer, ends = runner.run(self._start(bootstrap, topics))
            try:
                deadline = deadline_of(self.name)
                while runner.run(self._behind(consumer, ends)):
                    deadline()
                    batches = runner.run(
                        consumer.getmany(timeout_ms=200, max_records=RECORDS_A_CALL)
                    )
                    for batch in batches.values():
                        for record in batch:
                            place = (record.topic, record.partition, record.offset)
                            yield (*place, record.key, record.value)
            finally:
                runner.run(consumer.stop())

    async def _start(self, bootstrap: str, topics: Sequence[str]) -> tuple[Any, Mapping[Any, int]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none"
        )
        await consumer.start()
        await asyncio.gather(*(consumer._client.add_topic(topic) for topic in topics))
        parts = [
            AioTopicPartition(topic, partition)
            for topic in topics
            for partition in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        return consumer, await consumer.end_offsets(parts)

    async def _behind(self, consumer: Any, ends: Mapping[Any, int]) -> bool:
        return any([await consumer.position(part) < end for part, end in ends.items()])


class KcatClient:
    """kcat 1.7.1 from Debian, on an old librdkafka; it reads all partitions of a topic in one run."""

    name = "kcat"

    def produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Iterable[KeyedRecord]
    ) -> None:
        """Send records whose keys and values contain no tabs or newlines."""
        lines = [key + b"\t" + value for key, value in records if key and value]
        for topic, codec in codecs.items():
            command = ["kcat", "-P", "-q", "-b", bootstrap, "-t", topic, "-K", "\\t", "-z", codec]
            done = subprocess.run(
                [*command, "-X", "linger.ms=20"],
                input=b"\n".join(lines),
                capture_output=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            assert done.returncode == 0, f"kcat -P: {done.stderr.decode()}"

    def consume(self, bootstrap: str, topics: Sequence[str]) -> Iterator[ConsumedRecord]:
        for topic in topics:
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                command = ["kcat", "-C", "-q", "-e", "-o", "beginning", "-b", bootstrap]
                shape = ["-t", topic, "-f", "%p %o %K %S\\n%k%s\\n"]
                code = run_or_time_out([*command, *shape], output, errors)
                errors.seek(0)
                assert code == 0, f"kcat -C: {errors.read().decode(errors='replace')}"
                output.seek(0)
                yield from self._parse(topic, output)

    def _parse(self, topic: str, output: IO[bytes]) -> Iterator[ConsumedRecord]:
        """Yields records from a line of sizes and the counted bytes, safe for any key and value."""
        while line := output.readline():
            partition, offset, key_size, value_size = map(int, line.split())
            key = output.read(key_size) if key_size >= 0 else None
            value = output.read(value_size) if value_size >= 0 else None
            assert output.read(1) == b"\n"
            yield topic, partition, offset, key, value


def run_or_time_out(command: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> int:
    """Returns the exit code. Raises TimeoutError when it hangs."""
    try:
        return subprocess.run(
            command, stdout=output, stderr=errors, timeout=SECONDS_MAX, check=False
        ).returncode
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{command[0]} did not reach the end") from error


class deadline_of:
    """A check for loops; it raises TimeoutError once `SECONDS_MAX` have passed."""

    __slots__ = ("_client", "_ends_at")

    def __init__(self, client: str) -> None:
        self._client = client
        self._ends_at = time.monotonic() + SECONDS_MAX

    def __call__(self) -> None:
        if time.monotonic() > self._ends_at:
            raise TimeoutError(f"{self._client} did not reach the end in {SECONDS_MAX} s")


def client(name: str) -> Client:
    """Returns the client with this name; see `CLIENT_NAMES`.

    Raises:
        JarsUnavailable: the Java client is unavailable; the message says what to install.
        FileNotFoundError: kcat is not installed.
    """
    if name.startswith("java-"):
        return JavaClient(name.removeprefix("java-"))
    if name == "kcat" and shutil.which("kcat") is None:
        raise FileNotFoundError("kcat is missing: install it with `apt-get install kcat`.")
    by_name: dict[str, Callable[[], Client]] = {
        "confluent-kafka": ConfluentClient,
        "kafka-python": KafkaPythonClient,
        "aiokafka": AiokafkaClient,
        "kcat": KcatClient,
    }
    return by_name[name]()


PYTHON_CLIENT_NAMES = ("confluent-kafka", "kafka-python", "aiokafka")
CLIENT_NAMES = (*PYTHON_CLIENT_NAMES, "kcat", *(f"java-{release}" for release in RELEASES))


def create_topic(
    bootstrap: str, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic with confluent-kafka's admin client. Raises the broker's error."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, partitions, 1, config=dict(config or {}))
    for future in admin.create_topics([wanted], operation_timeout=10).values():
        future.result(timeout=20)


def high_watermarks(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """Returns the high watermark of each partition, which an open transaction does not hold back."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused: nothing is committed",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        return {
            partition: consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=SECONDS_MAX
            )[1]
            for partition in range(partitions)
        }
    finally:
        consumer.close()
