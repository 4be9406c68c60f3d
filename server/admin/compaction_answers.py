"""Checks, refusals and job answers that all HTTP requests about cleaning share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from server.admin.compaction_jobs import Job
from server.admin.compaction_json import job_json
from server.admin.large_answers import LargeAnswers
from server.admin.refusals import CompactionRefused
from storage.files.errors import StorageError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NUMBER_MAX = (1 << 63) - 1
"""Bound on offsets, partitions and counts; Python refuses to parse numbers of thousands of digits."""


def refusals_as_json(handler: Handler) -> Handler:
    """Returns the handler wrapped so that its refusals become JSON answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except CompactionRefused as refused:
            return _error(refused.status, str(refused), refused.code)
        except StorageError as error:
            return _error(500, str(error))

    return answer


def topic_and_partition(request: web.Request) -> tuple[str | None, int | None]:
    """Returns the topic and the partition that a request names. Raises CompactionRefused."""
    text = request.match_info.get("partition")
    partition = None if text is None else parse_number(text)
    if text is not None and partition is None:
        raise CompactionRefused(404, f"{text!r} is not the number of a partition")
    return request.match_info.get("topic"), partition


def parse_number(text: str) -> int | None:
    """Returns the number in decimal digits, up to `NUMBER_MAX`; None for any other text. Pure."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(NUMBER_MAX)):
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None


async def accepted(job: Job, answers: LargeAnswers) -> web.Response:
    """Returns the answer to a request that started a job; its Location is the job's URL."""
    body = job_json(job)
    return await answers.of(body, status=202, headers={"Location": body["url"]})


def _error(status: int, message: str, code: str | None = None) -> web.Response:
    body = {"error": message} if code is None else {"error": message, "code": code}
    return web.json_response(body, status=status)
