"""A client that fetches in a session knows as much as one that names all its partitions.

Random histories: records, deleted records, topics that are replaced, new epochs, positions that move,
partitions that come and go. After each step both kinds of requests ask for the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

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
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch
from server.topics.topic import Topic
from tests.harness.examples import examples
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker, batch_of, records_in, serving_broker

TOPICS = {"orders": 4, "users": 3}
STEPS = 60
UNKNOWN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
"""A session remembers the name of a topic that is gone, so it gets another one of these, as in Kafka."""

Place = tuple[str, int]


@dataclass(frozen=True)
class Known:
    """What an answer says about a partition, and the offsets of its records."""

    error_code: ErrorCode
    high_watermark: int
    log_start: int
    offsets: tuple[int, ...]

    @classmethod
    def from_data(cls, data: PartitionData) -> Known:
        code = ErrorCode(data.error_code)
        if code in UNKNOWN:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        offsets = () if code else tuple(record.offset for record in records_in(data))
        return cls(code, data.high_watermark, data.log_start_offset, offsets)


class Reader:
    """A client with a session, and what it knows from the answers so far."""

    def __init__(self, served: ServedBroker, client: RawClient, version: int) -> None:
        self._served = served
        self._client = client
        self._version = version
        self.topics: dict[str, Topic] = {}
        """The topics as the client knows them."""
        self.positions: dict[Place, FetchPartition] = {}
        self.known: dict[Place, Known] = {}
        self._changed: set[Place] = set()
        self._forgotten: set[Place] = set()
        self._session = self._epoch = 0

    def seek(self, place: Place, offset: int) -> None:
        """Read a partition from an offset next time."""
        topic, number = place
        log = self._served.log(topic, number) if self._is_there(topic) else None
        self.positions[place] = FetchPartition(
            partition=number,
            fetch_offset=offset,
            current_leader_epoch=-1 if log is None else log.leader_epoch,
            partition_max_bytes=1 << 20,
        )
        self._changed.add(place)
        self._forgotten.discard(place)

    def forget(self, place: Place) -> None:
        del self.positions[place]
        self.known.pop(place, None)
        self._changed.discard(place)
        self._forgotten.add(place)

    def _is_there(self, topic: str) -> bool:
        return self._served.broker.topics.get(topic) is not None

    async def ask_in_session(self, isolation: int) -> None:
        """Ask for what has changed, and update what is known."""
        named = self._changed if self._session else set(self.positions)
        request = self._request(named, isolation, forgotten=self._forgotten)
        answer = await self._client.call(request, self._version, FetchResponse)
        assert answer.error_code == ErrorCode.NONE
        self._changed.clear()
        self._forgotten.clear()
        self.known = {
            place: Known(each.error_code, each.high_watermark, each.log_start, ())
            for place, each in self.known.items()
        }
        self.known |= self._known_from(answer)
        self._session, self._epoch = answer.session_id, self._epoch + 1
        if not self._session:
            self._epoch = 0

    async def all_known(self, isolation: int) -> dict[Place, Known]:
        """Returns what the answer without a session says about the same partitions."""
        request = self._request(set(self.positions), isolation, session=(0, -1))
        return self._known_from(await self._client.call(request, self._version, FetchResponse))

    def _request(
        self,
        places: set[Place],
        isolation: int,
        *,
        forgotten: set[Place] | None = None,
        session: tuple[int, int] | None = None,
    ) -> FetchRequest:
        has_ids = self._version >= IDS_SINCE
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=isolation,
            session_id=self._session if session is None else session[0],
            session_epoch=self._epoch if session is None else session[1],
            topics=tuple(
                FetchTopic(topic_id=topic.id, partitions=found)
                if has_ids
                else FetchTopic(topic=name, partitions=found)
                for name, topic in self.topics.items()
                if (
                    found := tuple(
                        self.positions[each] for each in sorted(places) if each[0] == name
                    )
                )
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=self.topics[name].id, partitions=(number,))
                if has_ids
                else ForgottenTopic(topic=name, partitions=(number,))
                for name, number in forgotten or ()
            ),
        )

    def _known_from(self, answer: FetchResponse) -> dict[Place, Known]:
        names = {topic.id: name for name, topic in self.topics.items()}
        return {
            (topic.topic or names[topic.topic_id], data.partition_index): Known.from_data(data)
            for topic in answer.responses
            for data in topic.partitions
        }


class History:
    """One random history."""

    def __init__(self, served: ServedBroker, reader: Reader, random: Random) -> None:
        self._served = served
        self._reader = reader
        self._random = random

    async def step(self) -> None:
        work = self._random.choice(
            (self._produce, self._produce, self._delete_records, self._replace, self._lead, self._seek,
             self._seek, self._come_or_go, self._nothing, self._nothing, self._nothing)
        )  # fmt: skip
        await work()

    async def _nothing(self) -> None:
        """The logs stay as they are."""

    def _place(self) -> Place:
        name = self._random.choice(sorted(TOPICS))
        return name, self._random.randrange(TOPICS[name])

    async def _produce(self) -> None:
        name, number = self._place()
        await self._served.produce(name, batch_of(self._random.randint(1, 3)), number)

    async def _delete_records(self) -> None:
        name, number = self._place()
        log = self._served.log(name, number)
        before = self._random.randint(log.log_start_offset, log.high_watermark)
        wanted = DeleteRecordsPartition(partition_index=number, offset=before)
        topic = DeleteRecordsTopic(name=name, partitions=(wanted,))
        request = DeleteRecordsRequest(topics=(topic,), timeout_ms=30_000)
        await self._served.call(request, 2, DeleteRecordsResponse)

    async def _replace(self) -> None:
        """Delete a topic and create it again; the client learns of it now and then."""
        request = DeleteTopicsRequest(topic_names=("users",), timeout_ms=30_000)
        await self._served.call(request, 5, DeleteTopicsResponse)
        await self._served.create("users", TOPICS["users"])

    async def _lead(self) -> None:
        name, number = self._place()
        log = self._served.log(name, number)
        log.lead_above(Epoch(log.leader_epoch))

    async def _seek(self) -> None:
        if self._reader.positions:
            place = self._random.choice(sorted(self._reader.positions))
            log = self._served.log(*place)
            self._reader.seek(place, self._random.randint(0, log.high_watermark + 1))

    async def _come_or_go(self) -> None:
        place = self._place()
        if place in self._reader.positions:
            self._reader.forget(place)
        else:
            self._reader.seek(place, 0)

    def read_on(self) -> None:
        """Move to the end of the records that came, for most partitions."""
        for place, each in self._reader.known.items():
            if each.offsets and self._random.random() < 0.8:
                self._reader.seek(place, each.offsets[-1] + 1)


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("seed", range(examples(12)))
async def test_a_session_tells_what_full_requests_are_known_from(
    tmp_path: Path, version: int, seed: int
) -> None:
    random = Random(f"{version} {seed}")
    async with serving_broker(tmp_path) as served:
        reader = Reader(served, await served.connect(), version)
        reader.topics = {name: await served.create(name, count) for name, count in TOPICS.items()}
        for place in [(name, number) for name, count in TOPICS.items() for number in range(count)]:
            reader.seek(place, 0)
        history = History(served, reader, random)
        for _ in range(STEPS):
            await history.step()
            isolation = random.choice((0, 0, 0, 1))
            await reader.ask_in_session(isolation)
            assert reader.known == await reader.all_known(isolation)
            history.read_on()
