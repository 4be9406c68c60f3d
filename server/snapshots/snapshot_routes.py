"""The HTTP routes of snapshots (docs/design/snapshots.md).

GET    /v1/snapshots         200 {"pinned_bytes", "snapshots": [snapshot, ...]}, the oldest first
POST   /v1/snapshots         201 snapshot, once it is durable; body: {"topics": [name, ...],
                             "at_ms": an earlier time}; without topics, or without a body, it is of all
                             topics, without at_ms of now. 400, 404, 409
GET    /v1/snapshots/<id>    200 snapshot with "partitions": [{"topic", "partition", "start_offset",
                             "end_offset", "bytes"}, ...]; 404
DELETE /v1/snapshots/<id>    200 {}: its files are gone; 404

A snapshot: {"id", "created_ms", "at_ms": the earlier time, null if it is of created_ms, "is_complete",
"reason": why it is not, "path": of its descriptor, "topics": [name, ...], "partitions_count", "bytes":
the size of its segments, "pinned_bytes": what is freed if it alone is dropped}. One that is not complete
has only "id", "is_complete", "reason" and "pinned_bytes". The "pinned_bytes" of the list are those of
files that only snapshots hold. Both were counted a minute ago at most; earlier if there are many files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from server.admin.compaction_answers import Handler, refusals_as_json
from server.admin.http_rules import SNAPSHOT, SNAPSHOTS
from server.admin.large_answers import LargeAnswers
from server.admin.refusals import CompactionRefused, serving
from server.runtime.sliced_json import Json, Rows
from server.snapshots.making import Wanted
from server.snapshots.refusal import SnapshotRefused
from server.snapshots.snapshots import Snapshots
from storage.snapshots.descriptor import SnapshotDescriptor
from storage.snapshots.snapshot_files import StoredSnapshot

TIME_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class SnapshotRoutes:
    """Answers the requests above."""

    def __init__(self, snapshots: Callable[[], Snapshots | str]) -> None:
        """
        Args:
            snapshots: returns the broker's snapshots, or a sentence that says why there are none.
        """
        self._snapshots = snapshots
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.get(SNAPSHOTS, refusing(self._list)),
            web.post(SNAPSHOTS, refusing(self._create)),
            web.get(SNAPSHOT, refusing(self._show)),
            web.delete(SNAPSHOT, refusing(self._drop)),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        snapshots = serving(self._snapshots())
        found = await snapshots.all()
        return await self._answers.of(
            {
                "pinned_bytes": snapshots.pinned.total,
                "snapshots": Rows(lambda each: _shown(snapshots, each), found),
            }
        )

    async def _create(self, request: web.Request) -> web.Response:
        snapshots = serving(self._snapshots())
        made = await snapshots.create(_wanted_in(await request.read()))
        return await self._answers.of(_shown(snapshots, made), status=201)

    async def _show(self, request: web.Request) -> web.Response:
        snapshots, snapshot_id = serving(self._snapshots()), request.match_info["snapshot"]
        for each in await snapshots.all():
            if each.id == snapshot_id:
                its = each.descriptor
                partitions = {} if its is None else {"partitions": _rows(its)}
                return await self._answers.of(_shown(snapshots, each) | partitions)
        raise _unknown(snapshot_id)

    async def _drop(self, request: web.Request) -> web.Response:
        snapshot_id = request.match_info["snapshot"]
        if not await serving(self._snapshots()).drop(snapshot_id):
            raise _unknown(snapshot_id)
        return web.json_response({})


def _wanted_in(body: bytes) -> Wanted:
    """Returns what a request asks for. Raises CompactionRefused."""
    try:
        value: Any = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise CompactionRefused(400, "send a JSON object, or nothing") from error
    if not isinstance(value, dict):
        raise CompactionRefused(400, "send a JSON object, or nothing")
    return Wanted(names=_topics_in(value.get("topics")), at_ms=_time_in(value.get("at_ms")))


def _time_in(at_ms: Any) -> int | None:
    if at_ms is None:
        return None
    if not isinstance(at_ms, int) or isinstance(at_ms, bool) or not 0 <= at_ms <= TIME_MAX:
        raise CompactionRefused(400, "at_ms is a time in ms since 1970; leave it out for now")
    return at_ms


def _topics_in(topics: Any) -> list[str] | None:
    if topics is None:
        return None
    if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
        raise CompactionRefused(400, "topics is a list of names; leave it out for all topics")
    if not topics:
        raise CompactionRefused(400, "topics has no name; leave it out for all topics")
    return topics


def _shown(snapshots: Snapshots, found: StoredSnapshot) -> Json:
    its = found.descriptor
    pinned = {"pinned_bytes": snapshots.pinned.alone.get(found.id, 0)}
    if its is None:
        return {"id": found.id, "is_complete": False, "reason": found.reason} | pinned
    return {
        "id": its.id,
        "created_ms": its.created_ms,
        "at_ms": its.at_ms,
        "is_complete": True,
        "reason": "",
        "path": snapshots.descriptor_path(its.id),
        "topics": [topic.name for topic in its.topics],
        "partitions_count": found.partitions_count,
        "bytes": found.size_bytes,
    } | pinned


def _rows(its: SnapshotDescriptor) -> Rows:
    return Rows(
        lambda row: {
            "topic": row[0],
            "partition": row[1].partition,
            "start_offset": row[1].start_offset,
            "end_offset": row[1].end_offset,
            "bytes": row[1].bytes,
        },
        [(topic.name, each) for topic in its.topics for each in topic.partitions],
    )


def _unknown(snapshot_id: str) -> CompactionRefused:
    return CompactionRefused(404, f"there is no snapshot {snapshot_id}")


def refusing(handler: Handler) -> Handler:
    """Returns the handler wrapped so that refusals of snapshots become JSON answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except SnapshotRefused as refused:
            raise CompactionRefused(refused.status, str(refused)) from refused

    return refusals_as_json(answer)
