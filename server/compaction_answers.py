"""What all requests to the cleaner over HTTP share: their checks, their refusals, their jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from aiohttp import web

from server.compaction import CompactionRefused
from server.compaction_jobs import Job
from server.compaction_json import Json, job_json
from server.http_guard import refusal
from storage.errors import StorageError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answered(handler: Handler, our_hosts: Callable[[], Collection[str]]) -> Handler:
    """The handler, behind the checks of every request, with its refusals as JSON.

    Args:
        our_hosts: the names that clients may call this broker by.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        foreign = refusal(request.host, request.headers.get("Origin"), our_hosts())
        if foreign is not None:
            return _error(403, foreign)
        try:
            return await handler(request)
        except CompactionRefused as refused:
            return _error(refused.status, str(refused))
        except StorageError as error:
            return _error(500, str(error))

    return answer


def where_of(request: web.Request) -> tuple[str | None, int | None]:
    """The topic and the partition that a request is about. Raises CompactionRefused."""
    partition = request.match_info.get("partition")
    if partition is not None and not partition.isdecimal():
        raise CompactionRefused(404, f"{partition!r} is not the number of a partition")
    return request.match_info.get("topic"), None if partition is None else int(partition)


def accepted(job: Job) -> web.Response:
    """The answer to who began a job: where it can be looked at."""
    told: Json = job_json(job)
    return web.json_response(told, status=202, headers={"Location": told["url"]})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
