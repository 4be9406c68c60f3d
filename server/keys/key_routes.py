"""The HTTP routes that count the keys of a topic (docs/design/key-analytics.md).

For <where> = /v1/compaction/topics/<topic> or .../topics/<topic>/partitions/<n>
POST   <where>/keys?top=N     202 and a job that counts its keys, and finds those with most records
GET    <where>/keys/<id>      the job with its result, which shows keys: so it needs Read on the topic,
                              unlike /v1/compaction/jobs/<id>
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from cleaner.inspect.key_analysis import KeyAnalysis
from cleaner.pool.inspection import count_keys
from server.admin.compaction import Compaction
from server.admin.compaction_answers import (
    accepted,
    parse_number,
    refusals_as_json,
    topic_and_partition,
)
from server.admin.compaction_jobs import Job, Part
from server.admin.compaction_json import job_json, part_json
from server.admin.http_rules import WHERES
from server.admin.large_answers import LargeAnswers
from server.admin.refusals import CompactionRefused, serving
from server.keys.key_json import keys_json, total_json
from server.runtime.executors import Executor
from server.runtime.sliced_json import Json, Rows
from storage.log.log import PartitionLog

KIND = "keys"
TOP = 10
TOP_MAX = 100
LISTED_MAX = 20_000
"""A job names at most so many hot keys, over all partitions."""


class KeyRoutes:
    """Answers the requests above."""

    def __init__(self, compaction: Callable[[], Compaction | str], *, upkeep: Executor) -> None:
        """
        Args:
            compaction: as in `CompactionRoutes`.
            upkeep: the threads that add up the counts of partitions.
        """
        self._compaction = compaction
        self._upkeep = upkeep
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            route
            for where in WHERES
            for route in (
                web.post(where + "/keys", refusals_as_json(self._count)),
                web.get(where + "/keys/{job}", refusals_as_json(self._counted)),
            )
        ]

    async def _count(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        logs = compaction.logs_of(topic, partition)
        inspection = count_keys(top=_top(request, logs))
        compaction.check_may_clean(logs, force=True)
        job = compaction.jobs.begin(
            KIND,
            logs,
            lambda log, on_start: compaction.pool.inspect(log, inspection, on_start=on_start),
        )
        return await accepted(job, self._answers)

    async def _counted(self, request: web.Request) -> web.Response:
        compaction, (topic, _) = serving(self._compaction()), topic_and_partition(request)
        number = parse_number(request.match_info["job"])
        job = None if number is None else compaction.jobs.get(number)
        if job is None or job.kind != KIND or job.parts[0].topic_partition.topic != topic:
            raise CompactionRefused(
                404,
                f"there is no such count of the keys of {topic}:"
                " it ended long ago, or the broker has restarted",
            )
        return await self._answers.of(await self._json_of(job))

    async def _json_of(self, job: Job) -> Json:
        """Returns a job with its result, and with the sums over its partitions once all are done."""
        analyses = [part.outcome for part in job.parts if isinstance(part.outcome, KeyAnalysis)]
        is_whole = len(analyses) == len(job.parts)
        return {
            **job_json(job),
            "total": await self._upkeep.run(total_json, analyses) if is_whole else None,
            "partitions": Rows(_part_json, job.parts),
        }


def _part_json(part: Part) -> Json:
    outcome = part.outcome
    return {
        **part_json(part),
        "keys": keys_json(outcome) if isinstance(outcome, KeyAnalysis) else None,
    }


def _top(request: web.Request, logs: list[PartitionLog]) -> int:
    """Returns how many hot keys of each log a request asks for. Raises CompactionRefused."""
    text = request.query.get("top", str(TOP))
    number = parse_number(text)
    most = max(min(TOP_MAX, LISTED_MAX // max(len(logs), 1)), 1)
    if number is None or not 1 <= number <= most:
        raise CompactionRefused(400, f"top is a number from 1 to {most} here, not {text!r}")
    return number
