"""Asks a broker for records by fetch sessions (KIP-227), and writes down what each request gets.

The same scenes ask Apache Kafka and the broker under test:

    python -m tests.harness.fetch_sessions HOST:PORT    print the answers of a Kafka

A line is `request -> answer`. `0@2` is partition 0 from offset 2; in an answer, `0: 1 records, hw 3` is
a partition with its records and its high watermark. Session ids are numbered in order: S1, S2.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Self
from uuid import UUID

from protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.fetch import (
    IDS_SINCE,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import batch_of, only_produced, produce_request, records_in

PARTITIONS = 4
PATIENCE_SECONDS = 30.0
NO_SESSION, NEW, FINAL = 0, 0, -1
UNKNOWN_ID = UUID(int=0x1234)
WHOLE = 1 << 20

Place = tuple[int, int]
"""A partition and the offset to read from."""


class Asking:
    """One scene: a topic of its own, one connection, and the lines so far."""

    def __init__(self, client: RawClient, topic: str, topic_id: UUID, version: int) -> None:
        # Constant after construction
        self._client = client
        self._topic = topic
        self._topic_id = topic_id
        self.version = version
        # State
        self._sessions: dict[int, str] = {}
        self.lines: list[str] = []

    @classmethod
    async def open(cls, client: RawClient, topic: str, version: int) -> Self:
        """Create the topic, and wait until it can be produced to."""
        creatable = CreatableTopic(
            name=topic,
            num_partitions=PARTITIONS,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        request = CreateTopicsRequest(topics=(creatable,), timeout_ms=30_000)
        created = (await client.call(request, 7, CreateTopicsResponse)).topics[0]
        assert created.error_code == ErrorCode.NONE, created
        scene = cls(client, topic, created.topic_id, version)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for partition in range(PARTITIONS):
                while not await scene._has_leader(partition):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        return scene

    async def _has_leader(self, partition: int) -> bool:
        """Returns whether the partition can be read, without a session."""
        topics = self._topics([(partition, 0)], WHOLE)
        answer = await self._fetch(FINAL, NO_SESSION, topics, ())
        return answer.responses[0].partitions[0].error_code == ErrorCode.NONE

    async def produce(self, partition: int, count: int = 1) -> None:
        """Produce a batch, which must be accepted."""
        request = produce_request(self._topic, batch_of(count), partition)
        answer = only_produced(await self._client.call(request, 9, ProduceResponse))
        assert answer.error_code == ErrorCode.NONE, answer
        self.lines.append(f"  produce {count} to {partition}")

    async def delete_records(self, partition: int, before: int) -> None:
        """Move a partition's start."""
        wanted = DeleteRecordsPartition(partition_index=partition, offset=before)
        topic = DeleteRecordsTopic(name=self._topic, partitions=(wanted,))
        request = DeleteRecordsRequest(topics=(topic,), timeout_ms=30_000)
        answer = await self._client.call(request, 2, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        self.lines.append(f"  delete the records of {partition} before {before}")

    async def delete_topic(self) -> None:
        """Delete the topic, and wait until it has gone."""
        request = DeleteTopicsRequest(topic_names=(self._topic,), timeout_ms=30_000)
        await self._client.call(request, 5, DeleteTopicsResponse)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._has_leader(0):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        self.lines.append("  delete the topic")

    async def fetch(
        self,
        epoch: int,
        session: int = NO_SESSION,
        *places: Place,
        forget: Sequence[int] = (),
        max_bytes: int = WHOLE,
        unknown: bool = False,
        version: int | None = None,
        over: RawClient | None = None,
    ) -> int:
        """Ask, and write down the answer. Returns the answer's session id.

        Args:
            max_bytes: how many bytes the answer may have.
            unknown: whether to ask for a partition of a topic that does not exist, too.
            version, over: another version or connection than that of the scene.
        """
        version = version or self.version
        topics = self._topics(places, WHOLE, version=version) if places else ()
        if unknown:
            topics += self._topics([(0, 0)], WHOLE, name="no-such-topic", topic_id=UNKNOWN_ID)
        forgotten = self._forgotten(forget) if forget else ()
        answer = await self._fetch(
            epoch, session, topics, forgotten, max_bytes=max_bytes, version=version, over=over
        )
        asked = [f"{partition}@{offset}" for partition, offset in places]
        asked += ["unknown"] * unknown + [f"-{partition}" for partition in forget]
        also = f" v{version}" * (version != self.version) + " elsewhere" * (over is not None)
        also += f" up to {max_bytes}" * (max_bytes != WHOLE)
        name = self._name_of(session)
        self.lines.append(f"{name} epoch {epoch}{also}: {' '.join(asked)} -> {self._text(answer)}")
        return answer.session_id

    def _topics(
        self,
        places: Sequence[Place],
        max_bytes: int,
        *,
        name: str | None = None,
        topic_id: UUID | None = None,
        version: int | None = None,
    ) -> tuple[FetchTopic, ...]:
        partitions = tuple(
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
            for partition, offset in places
        )
        if (version or self.version) >= IDS_SINCE:
            return (FetchTopic(topic_id=topic_id or self._topic_id, partitions=partitions),)
        return (FetchTopic(topic=name or self._topic, partitions=partitions),)

    def _forgotten(self, partitions: Sequence[int]) -> tuple[ForgottenTopic, ...]:
        if self.version >= IDS_SINCE:
            return (ForgottenTopic(topic_id=self._topic_id, partitions=tuple(partitions)),)
        return (ForgottenTopic(topic=self._topic, partitions=tuple(partitions)),)

    async def _fetch(
        self,
        epoch: int,
        session: int,
        topics: tuple[FetchTopic, ...],
        forgotten: tuple[ForgottenTopic, ...],
        *,
        max_bytes: int = WHOLE,
        version: int | None = None,
        over: RawClient | None = None,
    ) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=session,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        return await (over or self._client).call(request, version or self.version, FetchResponse)

    def _name_of(self, session: int) -> str:
        if session == NO_SESSION:
            return "no session"
        return self._sessions.setdefault(session, f"S{len(self._sessions) + 1}")

    def _text(self, answer: FetchResponse) -> str:
        """Returns an answer as text."""
        if answer.error_code != ErrorCode.NONE:
            assert not answer.responses
            return f"{ErrorCode(answer.error_code).name}, {self._name_of(answer.session_id)}"
        parts = [
            ("" if self._is_mine(topic.topic, topic.topic_id) else "unknown ")
            + _partition_text(data)
            for topic in answer.responses
            for data in topic.partitions
        ]
        return "; ".join([self._name_of(answer.session_id), *parts])

    def _is_mine(self, name: str, topic_id: UUID) -> bool:
        return name == self._topic or topic_id == self._topic_id


def _partition_text(data: PartitionData) -> str:
    if data.error_code != ErrorCode.NONE:
        return (
            f"{data.partition_index}: {ErrorCode(data.error_code).name}, hw {data.high_watermark}"
        )
    count = len(records_in(data))
    start = f", start {data.log_start_offset}" if data.log_start_offset else ""
    return f"{data.partition_index}: {count} records, hw {data.high_watermark}{start}"


Scene = Callable[[Asking], Awaitable[None]]


async def only_changes_are_answered(scene: Asking) -> None:
    await scene.produce(0, 2)
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0), (2, 0))
    await scene.fetch(1, session, (0, 2))
    await scene.produce(1)
    await scene.fetch(2, session)
    await scene.fetch(3, session)
    await scene.fetch(4, session, (1, 1))
    await scene.fetch(5, session)
    await scene.produce(0)
    await scene.produce(2)
    await scene.fetch(6, session)
    await scene.fetch(7, session, (0, 3), (2, 1))


async def epochs_count_up(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    await scene.fetch(2, session)
    await scene.fetch(1, session)
    await scene.fetch(1, session)
    await scene.fetch(-7, session)
    await scene.fetch(2, session)
    await scene.produce(0)
    await scene.fetch(2, session)
    await scene.fetch(3, session)


async def sessions_that_do_not_exist(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    unknown = session % 1_000_000_007 + 1
    await scene.fetch(1, unknown, (0, 0))
    await scene.fetch(1, NO_SESSION, (0, 0))
    await scene.fetch(-5, NO_SESSION, (0, 0))
    await scene.fetch(1, -3, (0, 0))
    await scene.fetch(NEW, unknown, (0, 0), (1, 0))
    await scene.fetch(FINAL, unknown, (0, 0), (1, 0))


async def partitions_come_and_go(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0), (2, 0))
    await scene.fetch(1, session, forget=[2])
    await scene.produce(2)
    await scene.fetch(2, session)
    await scene.fetch(3, session, (2, 0))
    await scene.fetch(4, session, (2, 1), (3, 0))
    await scene.fetch(5, session, (3, 0), forget=[3])
    await scene.produce(3)
    await scene.fetch(6, session)
    await scene.fetch(7, session, forget=[3])
    await scene.fetch(8, session, (3, 0), forget=[0, 1, 2])
    await scene.fetch(9, session)


async def the_last_partition_goes(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    await scene.fetch(1, session, forget=[0, 1])
    await scene.fetch(2, session)
    await scene.fetch(1, session)
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    await scene.fetch(1, session, (0, 0), forget=[0, 1])
    await scene.fetch(2, session)


async def full_requests_close_the_session(scene: Asking) -> None:
    await scene.produce(0)
    first = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    second = await scene.fetch(NEW, first, (0, 0), (1, 0))
    await scene.fetch(1, first)
    await scene.fetch(1, second)
    await scene.fetch(FINAL, second, (0, 0), (1, 0))
    await scene.fetch(2, second)
    await scene.fetch(FINAL, NO_SESSION, (0, 0), (1, 0))


async def errors_come_each_time(scene: Asking) -> None:
    await scene.produce(0)
    session = await scene.fetch(NEW, NO_SESSION, (0, 100), (1, 0))
    await scene.fetch(1, session)
    await scene.fetch(2, session, (0, 1))
    await scene.fetch(3, session)
    await scene.fetch(4, session, (1, 9))
    await scene.fetch(5, session, (1, 0))
    await scene.fetch(6, session)
    await scene.fetch(7, session, (PARTITIONS, 0))
    await scene.fetch(8, session)
    await scene.fetch(9, session, forget=[PARTITIONS])


async def unknown_topics(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0), unknown=True)
    await scene.fetch(1, session)
    await scene.produce(1)
    await scene.fetch(2, session)


async def a_start_that_moves(scene: Asking) -> None:
    await scene.produce(0, 1)
    await scene.produce(0, 1)
    session = await scene.fetch(NEW, NO_SESSION, (0, 2), (1, 0))
    await scene.delete_records(0, 1)
    await scene.fetch(1, session)
    await scene.fetch(2, session)
    await scene.fetch(3, session, (0, 0))
    await scene.fetch(4, session, (0, 1))


async def a_deleted_topic(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    await scene.fetch(1, session)
    await scene.delete_topic()
    await scene.fetch(2, session)
    await scene.fetch(3, session)


async def names_and_ids_do_not_mix(scene: Asking) -> None:
    other = IDS_SINCE if scene.version < IDS_SINCE else IDS_SINCE - 1
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    await scene.fetch(1, session, version=other)
    await scene.fetch(1, session)


async def records_go_round(scene: Asking) -> None:
    for partition in range(3):
        await scene.produce(partition, 1)
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0), (2, 0), max_bytes=1)
    for epoch in range(1, 8):
        await scene.fetch(epoch, session, max_bytes=1)
    await scene.fetch(8, session)


async def named_twice(scene: Asking) -> None:
    await scene.produce(0, 2)
    session = await scene.fetch(NEW, NO_SESSION, (0, 9), (1, 0), (0, 0))
    await scene.fetch(1, session, (0, 9), (0, 2))
    await scene.fetch(2, session)


async def a_session_without_partitions(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION)
    if session != NO_SESSION:
        await scene.fetch(1, session)


async def another_connection(scene: Asking) -> None:
    session = await scene.fetch(NEW, NO_SESSION, (0, 0), (1, 0))
    address = scene._client._writer.get_extra_info("peername")
    async with await RawClient.connect(*address[:2]) as other:
        await scene.fetch(1, session, over=other)
        await scene.produce(0)
        await scene.fetch(2, session, over=other)
    await scene.fetch(3, session)


SCENES: tuple[Scene, ...] = (
    only_changes_are_answered,
    epochs_count_up,
    sessions_that_do_not_exist,
    partitions_come_and_go,
    the_last_partition_goes,
    full_requests_close_the_session,
    errors_come_each_time,
    unknown_topics,
    a_start_that_moves,
    a_deleted_topic,
    names_and_ids_do_not_mix,
    records_go_round,
    named_twice,
    a_session_without_partitions,
    another_connection,
)
VERSIONS = (12, 17)


async def transcript(host: str, port: int) -> str:
    """Play each scene with names and with ids. Returns the lines of all."""
    run, lines = time.time_ns(), []
    for scene in SCENES:
        for version in VERSIONS:
            title = scene.__name__.replace("_", " ")
            async with await RawClient.connect(host, port) as client:
                asking = await Asking.open(client, f"{scene.__name__}-{version}-{run}", version)
                await scene(asking)
            lines += [f"# {title}, v{version}", *asking.lines, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    host, port = sys.argv[1].split(":")
    sys.stdout.write(asyncio.run(transcript(host, int(port))))
