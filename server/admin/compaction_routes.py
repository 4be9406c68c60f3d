"""The HTTP routes that control the cleaner. Answers are JSON; a refusal is {"error": sentence}, with
"code": "unknown_topic" if the topic does not exist.

GET    /v1/compaction                      running, queued and last passes, quarantine and pauses
GET    /v1/compaction/history?topic=&partition=&limit=   the last passes, across restarts, newest first
POST   /v1/compaction/pause | resume       all cleaning
GET    /v1/compaction/jobs/<id>            a job's progress and result
DELETE /v1/compaction/jobs/<id>            stop it
and for <where> = /v1/compaction/topics/<topic> or .../topics/<topic>/partitions/<n>
POST   <where>/now?force=true              202 and a job that cleans it
POST   <where>/cancel                      stop what runs over it, or waits to
POST   <where>/plan                        202 and a job that finds out what `now` would do
POST   <where>/preview?topic_id=U          202 and a job that finds out what a change of the topic's
                                           settings would remove; the body has the changes
                                           (`policy_changes.py`); the id guards against another cluster
POST   <where>/pause | resume
GET    <where>/tombstones                  how many still have to go, their bytes, and when they fall due
GET    <where>/explain                     why it is not being compacted, and how to change that
GET    <where>/undo                        which passes can be undone, and until when
POST   <where>/undo?pass=N                 put back what a pass has replaced, and pause the topic
POST   <where>/find-key?key=K              202 and a job that finds all records of a key (UTF-8) on disk;
                                           ?key_hex= for any bytes
POST   <where>/digest?end_offset=N         202 and a job that computes a digest over the last values
                                           below an offset, by default the last stable offset
                                           (`cleaner/kernel/table_digest.h`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from server.admin.compaction import Compaction
from server.admin.compaction_answers import (
    NUMBER_MAX,
    accepted,
    parse_number,
    refusals_as_json,
    topic_and_partition,
)
from server.admin.compaction_jobs import Job
from server.admin.compaction_json import explanation_json, job_json
from server.admin.compaction_undo import kept_json, undo_json
from server.admin.http_rules import ROOT, WHERES
from server.admin.large_answers import LargeAnswers
from server.admin.policy_changes import CHANGES_BYTES_MAX, parse_changes
from server.admin.refusals import CompactionRefused, serving
from server.runtime.executors import Executor
from server.runtime.sliced_json import Rows
from storage.ledger.pass_history import PassHistory

HISTORY_ROWS = 100
HISTORY_ROWS_MAX = 100_000


class CompactionRoutes:
    """Answers the requests above."""

    def __init__(
        self,
        compaction: Callable[[], Compaction | str],
        history: PassHistory,
        *,
        upkeep: Executor,
    ) -> None:
        """
        Args:
            compaction: returns the object that controls the cleaner, or why there is none.
            upkeep: the threads that read the history.
        """
        self._compaction = compaction
        self._history = history
        self._upkeep = upkeep
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        routes = [
            web.get(ROOT, refusals_as_json(self._status)),
            web.get(ROOT + "/history", refusals_as_json(self._passes)),
            web.post(ROOT + "/pause", refusals_as_json(self._pause)),
            web.post(ROOT + "/resume", refusals_as_json(self._resume)),
            web.get(ROOT + "/jobs/{job}", refusals_as_json(self._job)),
            web.delete(ROOT + "/jobs/{job}", refusals_as_json(self._cancel)),
        ]
        for where in WHERES:
            routes += [
                web.post(where + "/now", refusals_as_json(self._now)),
                web.post(where + "/cancel", refusals_as_json(self._cancel_all)),
                web.post(where + "/plan", refusals_as_json(self._plan)),
                web.post(where + "/preview", refusals_as_json(self._preview)),
                web.post(where + "/find-key", refusals_as_json(self._find_key)),
                web.post(where + "/digest", refusals_as_json(self._digest)),
                web.get(where + "/tombstones", refusals_as_json(self._tombstones)),
                web.get(where + "/explain", refusals_as_json(self._explain)),
                web.get(where + "/undo", refusals_as_json(self._kept)),
                web.post(where + "/undo", refusals_as_json(self._undo)),
                web.post(where + "/pause", refusals_as_json(self._pause)),
                web.post(where + "/resume", refusals_as_json(self._resume)),
            ]
        return routes

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(await serving(self._compaction()).status())

    async def _passes(self, request: web.Request) -> web.Response:
        limit = _number(request, "limit", default=HISTORY_ROWS, at_least=1)
        assert limit is not None
        passes = await self._upkeep.run(
            self._history.read,
            topic=request.query.get("topic"),
            partition=_number(request, "partition", default=None, at_least=0),
            limit=min(limit, HISTORY_ROWS_MAX),
        )
        return web.json_response({"passes": [self._with_undo(each) for each in passes]})

    def _with_undo(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Returns a line of the history; one of a pass that is kept says until when it can be undone."""
        compaction = self._compaction()
        if isinstance(compaction, str) or not entry.get("undo_number"):
            return entry
        log = compaction.log_of(entry["topic"], entry["partition"])
        return entry if log is None else {**entry, "undo": undo_json(log, entry)}

    async def _now(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        force = _flag(request, "force")
        return await accepted(
            compaction.clean_now(compaction.logs_of(topic, partition), force=force), self._answers
        )

    async def _cancel_all(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        answer = compaction.cancel(compaction.logs_of(topic, partition))
        return await self._answers.of(answer)

    async def _plan(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        return await accepted(compaction.plan(compaction.logs_of(topic, partition)), self._answers)

    async def _preview(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        length = request.content_length
        if length is None or length > CHANGES_BYTES_MAX:
            raise CompactionRefused(
                413, f"send changes of at most {CHANGES_BYTES_MAX} bytes as JSON"
            )
        changes = parse_changes(await request.read())
        compaction.check_topic_id(topic, request.query.get("topic_id"))
        return await accepted(await compaction.preview(topic, partition, changes), self._answers)

    async def _find_key(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        key = _key(request)
        return await accepted(
            compaction.find_key(compaction.logs_of(topic, partition), key), self._answers
        )

    async def _digest(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        end_offset = _number(request, "end_offset", default=None, at_least=0)
        return await accepted(
            compaction.digest(compaction.logs_of(topic, partition), end_offset), self._answers
        )

    async def _tombstones(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        return await self._answers.of(await compaction.tombstones(topic, partition))

    async def _explain(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        logs = compaction.logs_of(topic, partition)
        explanations = [
            explanation_json(
                explanation, compaction.pool.expiry_of(log), compaction.pool.reclaimable_of(log)
            )
            for explanation, log in zip(await compaction.explain(logs), logs, strict=True)
        ]
        return web.json_response({"partitions": explanations})

    async def _kept(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        assert topic is not None
        logs = compaction.logs_of(topic, partition)
        return await self._answers.of({"partitions": Rows(kept_json, logs)})

    async def _undo(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = serving(self._compaction()), topic_and_partition(request)
        number = _number(request, "pass", default=None, at_least=1)
        if topic is None or number is None:
            raise CompactionRefused(400, "name a pass: ?pass=N; GET lists those that can be undone")
        return web.json_response(await compaction.undo(topic, partition, number))

    async def _pause(self, request: web.Request) -> web.Response:
        compaction = serving(self._compaction())
        await compaction.pause(*topic_and_partition(request))
        return web.json_response(compaction.paused())

    async def _resume(self, request: web.Request) -> web.Response:
        compaction = serving(self._compaction())
        await compaction.resume(*topic_and_partition(request))
        return web.json_response(compaction.paused())

    async def _job(self, request: web.Request) -> web.Response:
        return await self._answers.of(job_json(self._job_of(request)))

    async def _cancel(self, request: web.Request) -> web.Response:
        job = self._job_of(request)
        for part in job.parts:
            part.cancel()
        return await self._answers.of(job_json(job))

    def _job_of(self, request: web.Request) -> Job:
        text = request.match_info["job"]
        number = parse_number(text)
        job = None if number is None else serving(self._compaction()).jobs.get(number)
        if job is None:
            raise CompactionRefused(
                404, f"there is no job {text}: it ended long ago, or the broker has restarted"
            )
        return job


def _key(request: web.Request) -> bytes:
    """Returns the key that a request names, as text or in hexadecimal digits."""
    given = {name: request.query[name] for name in ("key", "key_hex") if name in request.query}
    if len(given) != 1:
        raise CompactionRefused(400, "name one key: ?key= or ?key_hex=")
    if "key" in given:
        return given["key"].encode()
    try:
        return bytes.fromhex(given["key_hex"])
    except ValueError:
        raise CompactionRefused(400, f"{given['key_hex']!r} is not hexadecimal") from None


def _flag(request: web.Request, name: str) -> bool:
    value = request.query.get(name, "false")
    if value not in ("true", "false"):
        raise CompactionRefused(400, f"{name} is true or false, not {value!r}")
    return value == "true"


def _number(request: web.Request, name: str, *, default: int | None, at_least: int) -> int | None:
    text = request.query.get(name)
    if text is None:
        return default
    number = parse_number(text)
    if number is None or number < at_least:
        raise CompactionRefused(
            400, f"{name} is a number from {at_least} to {NUMBER_MAX}, not {text!r}"
        )
    return number
