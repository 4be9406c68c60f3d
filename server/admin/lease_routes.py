"""The HTTP routes for remote cleaning: a client leases a log, cleans it, and has the result committed.

for <where> = /v1/compaction/topics/<topic>/partitions/<n>:

POST   <where>/lease              200 {"lease": id, "seconds": s, "plan": ...}: the log is leased; 409 if
                                  it is not compacted, is paused, or a pass runs over it
POST   <where>/lease/<id>/renew   200: it lasts `seconds` from now on; 409 if it has ended
POST   <where>/lease/<id>/commit  202 and a job that verifies the result (`cleaner/remote/plan.py`) in
                                  the body and swaps its groups; the lease ends with it, even if it fails
DELETE <where>/lease/<id>         200: it ends, and its folder is removed

Where the endpoint knows who its clients are, these need ClusterAction on the cluster (`http_rules.py`).
Elsewhere each request carries the token of the data directory, `Authorization: Bearer <token>`
(`remote_token.py`). `leases.py` beside this file keeps the leases; `cleaner/remote/commit.py` commits a
result. Unless `log.cleaner.remote.enable=true`, every answer is 403. No answer contains
the hash key of the log directory: an executor reads it where the segments are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.paused import CleaningPaused
from cleaner.pool.pool import LogBusy
from cleaner.remote.plan import RemoteResult
from cleaner.remote.strict_json import RefusedJson
from server.admin.compaction import Compaction
from server.admin.compaction_answers import Handler, accepted, refusals_as_json, topic_and_partition
from server.admin.http_rules import LEASE
from server.admin.large_answers import LargeAnswers
from server.admin.leases import CleaningLeases, LeaseRefused
from server.admin.refusals import CompactionRefused, serving
from server.admin.remote_token import shows_token
from server.runtime.executors import Executor
from storage.log.log import PartitionLog

RESULT_BYTES_MAX = 64 << 20
"""A result takes one bit for each batch that was rewritten, and a few hundred bytes for each segment."""
RESULT_SECONDS = 60.0
"""A result must arrive within this time, because its body holds memory meanwhile."""


class LeaseRoutes:
    """Answers the requests that the head of this file lists."""

    def __init__(
        self,
        compaction: Callable[[], Compaction | str],
        *,
        administration: Executor,
        needs_token: bool = True,
    ) -> None:
        """
        Args:
            compaction: as in `CompactionRoutes`.
            needs_token: whether requests must show the token of the data directory, because the endpoint
                does not know who sends them.
            administration: the threads that encode plans and parse results.
        """
        self._compaction = compaction
        self._administration = administration
        self._needs_token = needs_token
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.post(LEASE, self._with_token(self._begin)),
            web.post(LEASE + "/{lease}/renew", self._with_token(self._renew)),
            web.post(LEASE + "/{lease}/commit", self._with_token(self._commit)),
            web.delete(LEASE + "/{lease}", self._with_token(self._end)),
        ]

    def _with_token(self, handler: Handler) -> Handler:
        async def refused(request: web.Request) -> web.StreamResponse:
            try:
                self._check_token(request)
                return await handler(request)
            except (LeaseRefused, LogBusy, CleaningPaused, CleaningAborted) as error:
                raise CompactionRefused(409, str(error)) from error

        return refusals_as_json(refused)

    def _check_token(self, request: web.Request) -> None:
        _, token = self._leases_and_token()
        if self._needs_token and not shows_token(request.headers.get("Authorization"), token):
            raise CompactionRefused(
                401,
                "send the data directory's token: Authorization: Bearer <remote-cleaning.token>",
            )

    def _leases_and_token(self) -> tuple[CleaningLeases, str]:
        compaction = serving(self._compaction())
        if compaction.leases is None:
            raise CompactionRefused(403, "remote cleaning is off: log.cleaner.remote.enable=false")
        return compaction.leases, compaction.remote_token

    def _log_of(self, request: web.Request) -> PartitionLog:
        topic, partition = topic_and_partition(request)
        assert topic is not None
        (log,) = serving(self._compaction()).logs_of(topic, partition)
        return log

    async def _begin(self, request: web.Request) -> web.Response:
        leases, _ = self._leases_and_token()
        log = self._log_of(request)
        try:
            lease = await leases.begin(log)
        except ValueError as error:
            raise CompactionRefused(409, str(error)) from error
        text = await self._administration.run(lease.remote.to_json)
        return web.Response(
            text=f'{{"lease": "{lease.id}", "seconds": {leases.seconds:g}, "plan": {text}}}',
            content_type="application/json",
        )

    async def _renew(self, request: web.Request) -> web.Response:
        leases, _ = self._leases_and_token()
        leases.renew(self._log_of(request), request.match_info["lease"])
        return web.json_response({"seconds": leases.seconds})

    async def _commit(self, request: web.Request) -> web.Response:
        leases, _ = self._leases_and_token()
        body = await _body(request)
        try:
            result = await self._administration.run(RemoteResult.from_json, body)
        except RefusedJson as error:
            raise CompactionRefused(400, str(error)) from error
        job = leases.commit(self._log_of(request), request.match_info["lease"], result)
        return await accepted(job, self._answers)

    async def _end(self, request: web.Request) -> web.Response:
        leases, _ = self._leases_and_token()
        lease_id = request.match_info["lease"]
        await leases.end(self._log_of(request), lease_id)
        return web.json_response({"lease": lease_id, "is_over": True})


async def _body(request: web.Request) -> bytes:
    """Returns the body, which may be larger than the limit for other requests."""
    try:
        async with asyncio.timeout(RESULT_SECONDS):
            return await _all_of(request.content)
    except TimeoutError:
        raise CompactionRefused(408, f"a result must arrive within {RESULT_SECONDS:g} s") from None


async def _all_of(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > RESULT_BYTES_MAX:
            raise CompactionRefused(413, f"a result has at most {RESULT_BYTES_MAX} bytes")
    return bytes(body)
