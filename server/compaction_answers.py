"""What all requests to the cleaner over HTTP share: their checks, their refusals, their jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from server.compaction import CompactionRefused
from server.compaction_jobs import Job
from server.compaction_json import Json, job_json
from storage.errors import StorageError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NUMBER_MAX = (1 << 63) - 1
"""Of offsets, partitions and counts; Python refuses to read numbers of thousands of digits."""


def answered(handler: Handler) -> Handler:
    """The handler, with its refusals as JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except CompactionRefused as refused:
            return _error(refused.status, str(refused))
        except StorageError as error:
            return _error(500, str(error))

    return answer


def where_of(request: web.Request) -> tuple[str | None, int | None]:
    """The topic and the partition that a request is about. Raises CompactionRefused."""
    text = request.match_info.get("partition")
    partition = None if text is None else number_in(text)
    if text is not None and partition is None:
        raise CompactionRefused(404, f"{text!r} is not the number of a partition")
    return request.match_info.get("topic"), partition


def number_in(text: str) -> int | None:
    """What decimal digits say, if it is at most `NUMBER_MAX`; None for every other text. Pure."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(NUMBER_MAX)):
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None


def accepted(job: Job) -> web.Response:
    """The answer to who began a job: where it can be looked at."""
    told: Json = job_json(job)
    return web.json_response(told, status=202, headers={"Location": told["url"]})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
