"""Cleaning beyond one machine, over HTTP: who asks takes a log, cleans it, and has it committed.

of <where> = /v1/compaction/topics/<topic>/partitions/<n>:

POST   <where>/lease              200 {"lease": id, "seconds": s, "plan": ...}: the log is taken; 409 if
                                  it is not compacted, paused, or something runs over it
POST   <where>/lease/<id>/renew   200: it goes on for as many seconds from now; 409 if it has ended
POST   <where>/lease/<id>/commit  202 and a job that verifies the result (`cleaner/remote_plan.py`) in
                                  the body, and swaps its groups; the lease ends with it, however it goes
DELETE <where>/lease/<id>         200: it ends, and what was written under it is removed

Each request shows the token of the data directory, `Authorization: Bearer <token>` (`remote_token.py`).
All is off, 403, but with `log.cleaner.remote.enable=true`. The hash key of the log directory is in no
answer: an executor reads it where the segments are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web

from cleaner.meter import CleaningAborted
from cleaner.paused import CleaningPaused
from cleaner.pool import LogBusy
from cleaner.remote_plan import RemoteResult
from cleaner.strict_json import RefusedJson
from server.cleaning_leases import CleaningLeases, LeaseRefused
from server.compaction import Compaction, CompactionRefused
from server.compaction_answers import Handler, accepted, answered, where_of
from server.executors import Executor
from server.remote_token import shows_token
from storage.log import PartitionLog

LEASE = "/v1/compaction/topics/{topic}/partitions/{partition}/lease"
RESULT_BYTES_MAX = 64 << 20
"""A result tells a bit a batch of what was rewritten, and a few hundred bytes a segment."""
RESULT_SECONDS = 60.0
"""So long may a result be on its way; what is slower holds memory for nothing."""


class LeaseRoutes:
    """Answers the requests above."""

    def __init__(
        self,
        compaction: Callable[[], Compaction | str],
        *,
        administration: Executor,
    ) -> None:
        """`compaction` is as in `CompactionRoutes`; the threads write plans and read results."""
        self._compaction = compaction
        self._administration = administration

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [
            web.post(LEASE, self._answered(self._begin)),
            web.post(LEASE + "/{lease}/renew", self._answered(self._renew)),
            web.post(LEASE + "/{lease}/commit", self._answered(self._commit)),
            web.delete(LEASE + "/{lease}", self._answered(self._end)),
        ]

    def _answered(self, handler: Handler) -> Handler:
        async def refused(request: web.Request) -> web.StreamResponse:
            try:
                self._check_token(request)
                return await handler(request)
            except (LeaseRefused, LogBusy, CleaningPaused, CleaningAborted) as error:
                raise CompactionRefused(409, str(error)) from error

        return answered(refused)

    def _check_token(self, request: web.Request) -> None:
        _, token = self._remote()
        if not shows_token(request.headers.get("Authorization"), token):
            raise CompactionRefused(
                401,
                "show the data directory's token: Authorization: Bearer <remote-cleaning.token>",
            )

    def _remote(self) -> tuple[CleaningLeases, str]:
        compaction = self._steering()
        if compaction.leases is None:
            raise CompactionRefused(
                403, "cleaning by others is off: log.cleaner.remote.enable=false"
            )
        return compaction.leases, compaction.remote_token

    def _steering(self) -> Compaction:
        compaction = self._compaction()
        if isinstance(compaction, str):
            raise CompactionRefused(503, compaction)
        return compaction

    def _log_of(self, request: web.Request) -> PartitionLog:
        topic, partition = where_of(request)
        assert topic is not None
        (log,) = self._steering().logs_of(topic, partition)
        return log

    async def _begin(self, request: web.Request) -> web.Response:
        leases, _ = self._remote()
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
        leases, _ = self._remote()
        leases.renew(self._log_of(request), request.match_info["lease"])
        return web.json_response({"seconds": leases.seconds})

    async def _commit(self, request: web.Request) -> web.Response:
        leases, _ = self._remote()
        body = await _body(request)
        try:
            result = await self._administration.run(RemoteResult.from_json, body)
        except RefusedJson as error:
            raise CompactionRefused(400, str(error)) from error
        return accepted(leases.commit(self._log_of(request), request.match_info["lease"], result))

    async def _end(self, request: web.Request) -> web.Response:
        leases, _ = self._remote()
        lease_id = request.match_info["lease"]
        await leases.end(self._log_of(request), lease_id)
        return web.json_response({"lease": lease_id, "is_over": True})


async def _body(request: web.Request) -> bytes:
    """The body, which may be larger than what other requests may send."""
    try:
        async with asyncio.timeout(RESULT_SECONDS):
            return await _all_of(request.content)
    except TimeoutError:
        raise CompactionRefused(408, f"a result has to be sent in {RESULT_SECONDS:g} s") from None
    except (aiohttp.ClientPayloadError, web.RequestPayloadError) as error:
        raise CompactionRefused(400, f"the body cannot be read: {error}") from error


async def _all_of(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > RESULT_BYTES_MAX:
            raise CompactionRefused(413, f"a result has at most {RESULT_BYTES_MAX} bytes")
    return bytes(body)
