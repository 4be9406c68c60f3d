"""The HTTP routes that count records (docs/design/record-lag.md).

GET    /v1/topics/<topic>/records                            the records of each partition
GET    /v1/topics/<topic>/partitions/<n>/records?offset=N    those of one, and how many from N on
GET    /v1/groups/<group>/lag                                from each committed offset on, how many

The first two need Describe on the topic, the last one Describe on the cluster, as it names topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.admin.compaction_answers import NUMBER_MAX, parse_number, refusals_as_json
from server.admin.http_rules import GROUP_LAG, PARTITION_RECORDS, TOPIC_RECORDS
from server.admin.large_answers import LargeAnswers
from server.admin.refusals import UNKNOWN_TOPIC, CompactionRefused, serving
from server.coordination.groups.group_table import GroupTable
from server.live_records.counting import LiveRecords, Question, count_live_records
from server.live_records.record_json import (
    committed_json,
    partition_records_json,
    position_json,
    totals_json,
)
from server.lookup.asked_topic import check_partition
from server.runtime.executors import Executor
from server.runtime.paced_sort import paced_sort
from server.runtime.sliced_json import Json, Rows
from server.runtime.turns import Pace, Turns
from server.topics.topic import Topic
from server.topics.topics import Topics
from server.views.readable_topics import ReadableTopics
from storage.files.paths import topic_id_text
from storage.log.log import PartitionLog

ANSWERS_MAX = 4
"""So many answers about a topic or a group, which may be large, are made at once."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the routes read of a broker that serves."""

    topics: Topics
    readable: ReadableTopics
    groups: GroupTable
    cluster_id: str


class Committed(NamedTuple):
    """A committed offset as a question, which has its log if that is served."""

    topic: str
    partition: int
    question: Question


class RecordRoutes:
    """Answers the requests above."""

    def __init__(
        self, served: Callable[[], Served | str], turns: Turns, *, counting: Executor
    ) -> None:
        """
        Args:
            served: returns a sentence while the broker does not serve.
            counting: the thread that counts.
        """
        self._served = served
        self._turns = turns
        self._counting = counting
        self._answers = LargeAnswers()
        self._answering = asyncio.Semaphore(ANSWERS_MAX)

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.get(TOPIC_RECORDS, refusals_as_json(self._topic)),
            web.get(PARTITION_RECORDS, refusals_as_json(self._partition)),
            web.get(GROUP_LAG, refusals_as_json(self._group)),
        ]

    async def _topic(self, request: web.Request) -> web.Response:
        topic = self._asked(request)
        questions = (Question(log, finds_first=True) for log in topic.partitions)
        async with self._answering:
            answers = await count_live_records(questions, self._counting)
            totals = await self._counting.run(totals_json, answers)
            rows = list(enumerate(answers))
            return await self._answers.of(
                {
                    "topic": topic.name,
                    "topic_id": topic_id_text(topic.id),
                    "records": totals["records"],
                    "is_exact": totals["is_exact"],
                    "partitions": Rows(lambda row: partition_records_json(*row), rows),
                }
            )

    async def _partition(self, request: web.Request) -> web.Response:
        topic, number = self._asked(request), _number(request.match_info["partition"])
        check_partition(topic, number)
        text = request.query.get("offset")
        offset = None if text is None else Offset(_number(text))
        question = Question(topic.partitions[number], offset, finds_first=True)
        (answer,) = await count_live_records([question], self._counting)
        row = (
            partition_records_json(number, answer)
            if offset is None
            else position_json(number, offset, answer)
        )
        return web.json_response({"topic": topic.name, "topic_id": topic_id_text(topic.id), **row})

    async def _group(self, request: web.Request) -> web.Response:
        name = request.match_info["group"]
        served = serving(self._served())
        async with self._answering:
            committed = await self._committed(served, name)
            questions = (each.question for each in committed)
            answers = await count_live_records(questions, self._counting)
            return await self._answers.of(
                {
                    "group": name,
                    "cluster_id": served.cluster_id,
                    **await self._counting.run(totals_json, answers),
                    "partitions": Rows(_committed_row, list(zip(committed, answers, strict=True))),
                }
            )

    def _asked(self, request: web.Request) -> Topic:
        """Returns the topic of a request. Raises CompactionRefused."""
        name = request.match_info["topic"]
        topic = serving(self._served()).topics.get(name)
        if topic is None:
            raise CompactionRefused(404, f"there is no topic {name}", code=UNKNOWN_TOPIC)
        return topic

    async def _committed(self, served: Served, name: str) -> list[Committed]:
        """Returns the committed offsets of a group, sorted. Raises CompactionRefused."""
        entry = served.groups.find(name)
        if entry is None:
            raise CompactionRefused(404, f"there is no group {name}", code="unknown_group")
        if isinstance(entry, ErrorCode):
            raise CompactionRefused(503, f"{name}: {entry.message}")
        pace, by_topic = Pace(self._turns), entry.offsets.by_topic()
        found: list[Committed] = []
        # Of copies, because the group may commit between two slices.
        async for topic in paced_sort(list(by_topic), pace):
            readable, partitions = served.readable.get(topic), dict(by_topic.get(topic, {}))
            async for number in paced_sort(list(partitions), pace):
                log = None if readable is None else readable.partition(number)
                known = log if isinstance(log, PartitionLog) else None
                question = Question(known, Offset(partitions[number].offset))
                found.append(Committed(topic, number, question))
        return found


def _committed_row(row: tuple[Committed, LiveRecords | str]) -> Json:
    (topic, partition, question), answer = row
    assert question.offset is not None
    return committed_json(topic, partition, question.offset, answer)


def _number(text: str) -> int:
    number = parse_number(text)
    if number is None:
        raise CompactionRefused(400, f"{text!r} is not a number from 0 to {NUMBER_MAX}")
    return number
