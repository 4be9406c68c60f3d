"""The cleaner over HTTP; everything is answered with JSON, what is wrong with {"error": sentence}.

GET    /v1/compaction                      what runs, waits, rests, is paused, and was done
GET    /v1/compaction/history?topic=&partition=&limit=   the last passes, over restarts, newest first
POST   /v1/compaction/pause | resume       all cleaning
GET    /v1/compaction/jobs/<id>            how far a job is, and what came of it
DELETE /v1/compaction/jobs/<id>            stop it
and of <where> = /v1/compaction/topics/<topic> or .../topics/<topic>/partitions/<n>
POST   <where>/now?force=true              202 and a job that cleans it
POST   <where>/plan                        202 and a job that finds out what that would do
POST   <where>/pause | resume
GET    <where>/explain                     why it is not being compacted, and what changes that
POST   <where>/find-key?key=K              202 and a job that finds what is on disk of a key (UTF-8);
                                           ?key_hex= for any bytes
POST   <where>/digest?end_offset=N         202 and a job that sums the last values below an offset, by
                                           default all that is stable (`cleaner/table_digest.h`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from aiohttp import web

from server.compaction import Compaction, CompactionRefused
from server.compaction_jobs import Job
from server.compaction_json import Json, explanation_json, job_json
from server.http_guard import refusal
from storage.errors import StorageError
from storage.pass_history import PassHistory

ROOT = "/v1/compaction"
HISTORY_ROWS = 100
HISTORY_ROWS_MAX = 100_000
WHERES = (ROOT + "/topics/{topic}", ROOT + "/topics/{topic}/partitions/{partition}")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CompactionRoutes:
    """Answers the requests above."""

    def __init__(
        self,
        compaction: Callable[[], Compaction | str],
        history: PassHistory,
        *,
        our_hosts: Callable[[], Collection[str]],
    ) -> None:
        """
        Args:
            compaction: what steers the cleaner, or a sentence that says why nothing does.
            our_hosts: the names that clients may call this broker by.
        """
        self._compaction = compaction
        self._history = history
        self._our_hosts = our_hosts

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        routes = [
            web.get(ROOT, self._answered(self._status)),
            web.get(ROOT + "/history", self._answered(self._passes)),
            web.post(ROOT + "/pause", self._answered(self._pause)),
            web.post(ROOT + "/resume", self._answered(self._resume)),
            web.get(ROOT + "/jobs/{job}", self._answered(self._job)),
            web.delete(ROOT + "/jobs/{job}", self._answered(self._cancel)),
        ]
        for where in WHERES:
            routes += [
                web.post(where + "/now", self._answered(self._now)),
                web.post(where + "/plan", self._answered(self._plan)),
                web.post(where + "/find-key", self._answered(self._find_key)),
                web.post(where + "/digest", self._answered(self._digest)),
                web.get(where + "/explain", self._answered(self._explain)),
                web.post(where + "/pause", self._answered(self._pause)),
                web.post(where + "/resume", self._answered(self._resume)),
            ]
        return routes

    def _answered(self, handler: Handler) -> Handler:
        """The handler, behind the checks of every request, with its refusals as JSON."""

        async def answer(request: web.Request) -> web.StreamResponse:
            foreign = refusal(request.host, request.headers.get("Origin"), self._our_hosts())
            if foreign is not None:
                return _error(403, foreign)
            try:
                return await handler(request)
            except CompactionRefused as refused:
                return _error(refused.status, str(refused))
            except StorageError as error:
                return _error(500, str(error))

        return answer

    def _steering(self) -> Compaction:
        compaction = self._compaction()
        if isinstance(compaction, str):
            raise CompactionRefused(503, compaction)
        return compaction

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(await self._steering().status())

    async def _passes(self, request: web.Request) -> web.Response:
        limit = _number(request, "limit", default=HISTORY_ROWS, at_least=1)
        assert limit is not None
        passes = await asyncio.to_thread(
            self._history.read,
            topic=request.query.get("topic"),
            partition=_number(request, "partition", default=None, at_least=0),
            limit=min(limit, HISTORY_ROWS_MAX),
        )
        return web.json_response({"passes": passes})

    async def _now(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = self._steering(), _where(request)
        assert topic is not None
        force = _flag(request, "force")
        return _accepted(compaction.clean_now(compaction.logs_of(topic, partition), force=force))

    async def _plan(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = self._steering(), _where(request)
        assert topic is not None
        return _accepted(compaction.plan(compaction.logs_of(topic, partition)))

    async def _find_key(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = self._steering(), _where(request)
        assert topic is not None
        key = _key(request)
        return _accepted(compaction.find_key(compaction.logs_of(topic, partition), key))

    async def _digest(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = self._steering(), _where(request)
        assert topic is not None
        end_offset = _number(request, "end_offset", default=None, at_least=0)
        return _accepted(compaction.digest(compaction.logs_of(topic, partition), end_offset))

    async def _explain(self, request: web.Request) -> web.Response:
        compaction, (topic, partition) = self._steering(), _where(request)
        assert topic is not None
        told = [
            explanation_json(await compaction.explain(log))
            for log in compaction.logs_of(topic, partition)
        ]
        return web.json_response({"partitions": told})

    async def _pause(self, request: web.Request) -> web.Response:
        compaction = self._steering()
        await compaction.pause(*_where(request))
        return web.json_response(compaction.paused())

    async def _resume(self, request: web.Request) -> web.Response:
        compaction = self._steering()
        await compaction.resume(*_where(request))
        return web.json_response(compaction.paused())

    async def _job(self, request: web.Request) -> web.Response:
        return web.json_response(job_json(self._job_of(request)))

    async def _cancel(self, request: web.Request) -> web.Response:
        job = self._job_of(request)
        for part in job.parts:
            part.cancel()
        return web.json_response(job_json(job))

    def _job_of(self, request: web.Request) -> Job:
        text = request.match_info["job"]
        job = self._steering().jobs.get(int(text)) if text.isdecimal() else None
        if job is None:
            raise CompactionRefused(
                404, f"there is no job {text}: it ended long ago, or the broker has restarted"
            )
        return job


def _where(request: web.Request) -> tuple[str | None, int | None]:
    """The topic and the partition that a request is about."""
    partition = request.match_info.get("partition")
    if partition is not None and not partition.isdecimal():
        raise CompactionRefused(404, f"{partition!r} is not the number of a partition")
    return request.match_info.get("topic"), None if partition is None else int(partition)


def _key(request: web.Request) -> bytes:
    """The key that a request names, as text or in hexadecimal digits."""
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
    if not text.isdecimal() or int(text) < at_least:
        raise CompactionRefused(400, f"{name} is a number from {at_least} on, not {text!r}")
    return int(text)


def _accepted(job: Job) -> web.Response:
    told: Json = job_json(job)
    return web.json_response(told, status=202, headers={"Location": told["url"]})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
