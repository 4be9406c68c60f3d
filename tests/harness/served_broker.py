"""A whole broker in the test's own process and loop, on a real directory and a real socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch, read_records
from protocol.wire.error_codes import ErrorCode
from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import Message
from server.broker import Broker
from server.config.config import BrokerConfig
from server.runtime.clock import Clock, SystemClock
from server.topics.topic import Topic
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.log.log import PartitionLog
from tests.harness.files_in_threads import files_made_in_threads
from tests.harness.raw_client import RawClient
from tests.harness.watched_loop import WatchedLoop

M = TypeVar("M", bound=Message)

NOW_MS = time.time_ns() // 1_000_000
INFLATED_BYTES_MAX = 1 << 24


class ServedBroker:
    """A running broker, and the clients that a test connects to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        """Another one after `restarted`."""
        self._clients: list[RawClient] = []

    async def connect(self, listener: str = "PLAINTEXT", *, limit: int = 1 << 26) -> RawClient:
        """Returns a new connection to a listener."""
        client = await RawClient.connect(*self.broker.addresses[listener], limit=limit)
        self._clients.append(client)
        return client

    async def restarted(self, clock: Clock | None = None) -> None:
        """Wait until the broker wants to be started again, and do that as its process would.

        Args:
            clock: that of the new broker; by default the one of the old broker.
        """
        async with asyncio.timeout(60):
            await self.broker.wait_restart()
        await self.broker.stop()
        old = self.broker
        self.broker = Broker(old.config, files=old.files, clock=clock or old.clock)
        await self.broker.start()

    async def call(self, request: Message, version: int, response_type: type[M]) -> M:
        """Send one request on a new connection."""
        async with await RawClient.connect(*self.broker.addresses["PLAINTEXT"]) as client:
            return await client.call(request, version, response_type)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        """Create a topic with durable files; `cleanup_policy="compact"` sets `cleanup.policy`."""
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        topic = await self.broker.topics.create(
            name, partitions_count=partitions, overrides=overrides
        )
        assert isinstance(topic, Topic), topic
        await self.broker.topics._settling.finish()
        return topic

    def log(self, name: str, partition: int = 0) -> PartitionLog:
        """Returns the log of an existing partition."""
        topic = self.broker.topics.get(name)
        assert topic is not None
        log = topic.partition(partition)
        assert not isinstance(log, ErrorCode), log
        return log

    async def produce(
        self, name: str, batch: bytes | bytearray | None = None, partition: int = 0
    ) -> PartitionProduceResponse:
        """Produce a batch with acks=all; it must be accepted."""
        request = produce_request(name, batch_of(1) if batch is None else batch, partition)
        response = await self.call(request, 9, ProduceResponse)
        answer = only_produced(response)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    async def fetch(self, name: str, offset: int, **settings: Any) -> PartitionData:
        """Fetch one partition."""
        request = fetch_request([(name, 0, offset)], **settings)
        return only_fetched(await self.call(request, 12, FetchResponse))

    def disconnect(self) -> None:
        """Close every client."""
        for client in self._clients:
            client.close()


@asynccontextmanager
async def serving_broker(directory: Path, **properties: str) -> AsyncIterator[ServedBroker]:
    """Run a broker; `auto_create_topics_enable="false"` sets `auto.create.topics.enable`."""
    async with serving_broker_on(LocalFileSystem(), directory, **properties) as served:
        yield served


@asynccontextmanager
async def serving_broker_on(
    files: FileSystem, directory: Path, **properties: str
) -> AsyncIterator[ServedBroker]:
    """Run a broker on the test's file system."""
    texts = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "http.listener": "",
        "log.dirs": str(directory),
        "log.cleaner.enable": "false",
    } | {name.replace("_", "."): text for name, text in properties.items()}
    config = BrokerConfig.from_texts(texts)
    served = ServedBroker(Broker(config, files=files, clock=SystemClock()))
    try:
        await served.broker.start()
        with watched(), files_made_in_threads():
            yield served
    finally:
        served.disconnect()
        await served.broker.stop()


def watched() -> AbstractContextManager[None]:
    """Fail if the broker holds the loop for longer than it promises, where the loop can measure that."""
    loop = asyncio.get_running_loop()
    return loop.watched() if isinstance(loop, WatchedLoop) else nullcontext()


def batch_of(
    count: int = 1, *, value: bytes = b"value", key: bytes | None = b"key", **settings: Any
) -> bytearray:
    """Returns a batch of `count` equal records, as a producer sends it."""
    records = [
        Record(offset=index, timestamp=NOW_MS + index, key=key, value=value)
        for index in range(count)
    ]
    return build_batch(records, **settings)


def produce_request(
    name: str,
    batch: bytes | bytearray | None,
    partition: int = 0,
    topic_id: UUID = ZERO_UUID,
    **settings: Any,
) -> ProduceRequest:
    """Returns a request with one batch; acks=all unless `acks=` says otherwise.

    Versions with topic ids carry `topic_id`, the others the name.
    """
    view = None if batch is None else memoryview(batch)
    data = (PartitionProduceData(index=partition, records=view),)
    topic_data = (TopicProduceData(name=name, topic_id=topic_id, partition_data=data),)
    fields: dict[str, Any] = {"acks": -1, "timeout_ms": 1000, "topic_data": topic_data}
    return ProduceRequest(**fields | settings)


def fetch_request(
    wanted: Sequence[tuple[str, int, int]],
    *,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    topic_id: UUID = ZERO_UUID,
    **settings: Any,
) -> FetchRequest:
    """Returns a request for (topic, partition, offset); it does not wait unless `max_wait_ms=` is
    given.

    Versions with topic ids carry `topic_id`, the others the names.
    """
    topics = tuple(
        FetchTopic(
            topic=name,
            topic_id=topic_id,
            partitions=(
                FetchPartition(
                    partition=partition,
                    fetch_offset=offset,
                    partition_max_bytes=partition_max_bytes,
                    current_leader_epoch=current_leader_epoch,
                    last_fetched_epoch=last_fetched_epoch,
                ),
            ),
        )
        for name, partition, offset in wanted
    )
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "topics": topics}
    return FetchRequest(**fields | settings)


def only_produced(response: ProduceResponse) -> PartitionProduceResponse:
    """Returns the answer for the one partition in a produce."""
    ((answer,),) = [topic.partition_responses for topic in response.responses]
    return answer


def only_fetched(response: FetchResponse) -> PartitionData:
    """Returns the answer for the one partition in a fetch."""
    assert response.error_code == ErrorCode.NONE
    ((answer,),) = [topic.partitions for topic in response.responses]
    return answer


def records_in(data: PartitionData) -> list[Record]:
    """Returns the records of all batches in an answer."""
    assert isinstance(data.records, memoryview)
    records: list[Record] = []
    position = 0
    while position < len(data.records):
        records += read_records(data.records, position, decompressed_bytes_max=INFLATED_BYTES_MAX)
        position += read_header(data.records, position).size_bytes
    return records
