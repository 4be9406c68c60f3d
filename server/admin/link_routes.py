"""The HTTP routes of links to other clusters, and of their mirrors (docs/design/replication.md).

    GET    /v1/links                    200 {"links": [link, ...]}
    GET    /v1/links/<link>             200 link; 404
    PUT    /v1/links/<link>             201 link: it is created and started; 400, 409 if there is one
                                        (`server/replication/link_spec.py` has the body)
    PATCH  /v1/links/<link>             200 link: with the changed "bytes_per_second", "groups" or
                                        "resync"; 400
    DELETE /v1/links/<link>             200 {}; 409 while it has mirrors
    POST   /v1/links/<link>/pause       200 link
    POST   /v1/links/<link>/resume      200 link; also retries what has failed, and starts a link that
                                        could not run; 409 if it cannot be read
    POST   /v1/links/<link>/resync      200 {"started": [{"topic", "partition"}, ...], "refused":
                                        [{"topic", "partition", "reason"}, ...]}: failed partitions are
                                        copied once more; ?topic=T and &partition=N choose some,
                                        ?put_aside=true keeps the old logs; 400, 404, 409 if none has
                                        started, with its reason, or several in "missing"
    POST   /v1/mirrors/<topic>/promote  200 {"missing": [sentence, ...]}: an ordinary topic now; with
                                        ?force=true also if it lacks records; else 409 with "missing"

A link: {"name", "bootstrap", "properties": names only, "topics", "patterns", "groups", "acls",
"compaction", "resync": "manual" or "auto", "bytes_per_second", "paused", "reason": why the source does
not answer, "problems": {topic: sentence}, "group_offsets": null or {"groups", "synced_ms", "waiting",
"with_members", "problems": {group or broker: sentence}} (`server/replication/groups/group_sync.py`),
"acls_here": null or {"acls", "synced_ms", "problem"} (`server/replication/acl_sync.py`), "partitions":
[{"topic", "partition", "state", "since_ms", "reason", "end", "synced_end", "source_end", "lag",
"attempts", "next_attempt_ms", "cut_records", "skipped_records", "resync": null or {"started_ms",
"cause", "copied", "goal", "remaining_ms"} (`server/replication/resync.py`), "put_aside" (only with GET
of the link): [{"directory", "size_bytes"}, ...]}, ...]}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from server.admin.compaction_answers import refusals_as_json
from server.admin.http_rules import LINK, LINKS, PROMOTE
from server.admin.large_answers import LargeAnswers
from server.admin.refusals import CompactionRefused, serving
from server.replication.link_spec import BadLink, parse_link
from server.replication.replication import LinkRefused, Replication, UnknownLink

LINK_BYTES_MAX = 4 << 20
PARTITION_DIGITS_MAX = 10


class LinkRoutes:
    """Answers the requests above."""

    def __init__(self, links: Callable[[], Replication | str]) -> None:
        """
        Args:
            links: returns a sentence while the broker does not serve.
        """
        self._links = links
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.get(LINKS, refusing(self._list)),
            web.get(LINK, refusing(self._show)),
            web.put(LINK, refusing(self._create)),
            web.patch(LINK, refusing(self._alter)),
            web.delete(LINK, refusing(self._delete)),
            web.post(LINK + "/pause", refusing(self._pause)),
            web.post(LINK + "/resume", refusing(self._resume)),
            web.post(LINK + "/resync", refusing(self._resync)),
            web.post(PROMOTE, refusing(self._promote)),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        return await self._answers.of({"links": serving(self._links()).shown()})

    async def _show(self, request: web.Request) -> web.Response:
        links, name = serving(self._links()), request.match_info["link"]
        return await self._answers.of(await links.shown_whole(name))

    async def _create(self, request: web.Request) -> web.Response:
        links, name = serving(self._links()), request.match_info["link"]
        await links.create(parse_link(name, await _body(request)))
        return await self._answers.of(links.shown_one(name), status=201)

    async def _alter(self, request: web.Request) -> web.Response:
        links, name = serving(self._links()), request.match_info["link"]
        await links.alter(name, await _body(request))
        return await self._answers.of(links.shown_one(name))

    async def _delete(self, request: web.Request) -> web.Response:
        await serving(self._links()).delete(request.match_info["link"])
        return web.json_response({})

    async def _pause(self, request: web.Request) -> web.Response:
        return await self._pause_or_resume(request, is_paused=True)

    async def _resume(self, request: web.Request) -> web.Response:
        return await self._pause_or_resume(request, is_paused=False)

    async def _pause_or_resume(self, request: web.Request, *, is_paused: bool) -> web.Response:
        links, name = serving(self._links()), request.match_info["link"]
        await links.pause(name, is_paused=is_paused)
        return await self._answers.of(links.shown_one(name))

    async def _resync(self, request: web.Request) -> web.Response:
        query = request.query
        begun, refused = await serving(self._links()).resync(
            request.match_info["link"],
            query.get("topic"),
            _partition(query),
            puts_aside=query.get("put_aside") == "true",
        )
        started = [{"topic": each.topic, "partition": each.partition} for each in begun]
        others = [
            {"topic": each.topic, "partition": each.partition, "reason": reason}
            for each, reason in refused.items()
        ]
        return web.json_response({"started": started, "refused": others})

    async def _promote(self, request: web.Request) -> web.Response:
        is_forced = request.query.get("force") == "true"
        topic = request.match_info["topic"]
        missing = await serving(self._links()).promote(topic, is_forced=is_forced)
        return web.json_response({"missing": missing})


def _partition(query: Mapping[str, str]) -> int | None:
    number = query.get("partition")
    if number is None:
        return None
    if "topic" not in query:
        raise CompactionRefused(400, "a partition needs its topic")
    if not (number.isascii() and number.isdigit() and len(number) <= PARTITION_DIGITS_MAX):
        raise CompactionRefused(400, f"{number[:20]!r} is no number of a partition")
    return int(number)


async def _body(request: web.Request) -> bytes:
    if request.content_length is None or request.content_length > LINK_BYTES_MAX:
        raise CompactionRefused(413, f"send a link of at most {LINK_BYTES_MAX} bytes as JSON")
    return await request.read()


def refusing(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Returns the handler wrapped so that refusals about links become JSON answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadLink as error:
            raise CompactionRefused(400, str(error)) from error
        except LinkRefused as refused:
            status = 404 if isinstance(refused, UnknownLink) else 409
            body = {"error": str(refused), "missing": refused.missing}
            return web.json_response(body, status=status)

    return refusals_as_json(answer)
