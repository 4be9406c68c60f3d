"""The HTTP routes of the ledgers of cleaning passes (docs/design/ledger.md).

GET    /v1/compaction/ledger?topic=&partition=&offset=&limit=
                                         the last passes that changed a log, oldest first; with an
                                         offset, those whose groups covered it
GET    /v1/compaction/ledger/head        the signed head of each log directory's ledger
POST   /v1/compaction/ledger/verify      202 and a job that verifies all ledgers; the body may be what
                                         `head` answered earlier: then the chains must still have that
GET    /v1/compaction/ledger/verify/<id> the job: its progress, and the reports once it is over
DELETE /v1/compaction/ledger/verify/<id> stop it
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from cleaner.inspect.ledger_passes import PASSES_MAX, covering
from server.admin.compaction import Compaction
from server.admin.compaction_answers import NUMBER_MAX, parse_number, refusals_as_json
from server.admin.http_rules import LEDGER
from server.admin.large_answers import LargeAnswers
from server.admin.refusals import CompactionRefused, serving
from server.ledger.ledger_json import pass_json
from server.runtime.executors import Executor
from storage.ledger.ledger_head import SignedHead, heads_from_json

PASSES = 20


class LedgerRoutes:
    """Answers the requests above."""

    def __init__(self, compaction: Callable[[], Compaction | str], *, reads: Executor) -> None:
        """
        Args:
            compaction: returns the object that controls the cleaner, or why there is none.
            reads: the thread that reads ledgers.
        """
        self._compaction = compaction
        self._reads = reads
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.get(LEDGER, refusals_as_json(self._passes)),
            web.get(LEDGER + "/head", refusals_as_json(self._head)),
            web.post(LEDGER + "/verify", refusals_as_json(self._verify)),
            web.get(LEDGER + "/verify/{job}", refusals_as_json(self._show)),
            web.delete(LEDGER + "/verify/{job}", refusals_as_json(self._stop)),
        ]

    async def _passes(self, request: web.Request) -> web.Response:
        ledgers = serving(self._compaction()).ledgers
        offset = _number(request, "offset")
        limit = min(_number(request, "limit") or PASSES, PASSES_MAX)
        passes = await self._reads.run(
            ledgers.passes,
            topic=request.query.get("topic"),
            partition=_number(request, "partition"),
            limit=limit if offset is None else PASSES_MAX,
        )
        if offset is None:
            shown = [pass_json(each) for each in passes]
        else:
            found = covering(passes, offset)[-limit:]
            shown = [pass_json(each, [group]) for each, group in found]
        return await self._answers.of({"passes": shown})

    async def _head(self, request: web.Request) -> web.Response:
        heads = await self._reads.run(serving(self._compaction()).ledgers.heads)
        return web.json_response({"heads": [each.as_json() for each in heads]})

    async def _verify(self, request: web.Request) -> web.Response:
        verifications = serving(self._compaction()).ledger_verifications
        job = verifications.begin(_anchors(await request.read()))
        return web.json_response(job.as_json(), status=202)

    async def _show(self, request: web.Request) -> web.Response:
        verifications = serving(self._compaction()).ledger_verifications
        job = verifications.get(parse_number(request.match_info["job"]))
        return await self._answers.of(job.as_json())

    async def _stop(self, request: web.Request) -> web.Response:
        verifications = serving(self._compaction()).ledger_verifications
        job = verifications.get(parse_number(request.match_info["job"]))
        job.stop.set()
        return await self._answers.of(job.as_json())


def _anchors(body: bytes) -> list[SignedHead]:
    if not body:
        return []
    try:
        return heads_from_json(body)
    except ValueError as error:
        raise CompactionRefused(400, f"the body is not the head of a ledger: {error}") from None


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    number = None if text is None else parse_number(text)
    if text is not None and number is None:
        raise CompactionRefused(400, f"{name} is a number from 0 to {NUMBER_MAX}, not {text!r}")
    return number
