"""The HTTP routes that erase keys with a deadline and certify it (docs/design/erasure.md).

    POST <topic>/erase             201 {"erasures": [erasure, ...]}: one for each key; body: {"keys":
                                   [key in hexadecimal digits, ...], "within_ms": n to the deadline}. It
                                   is answered once the tombstones are durable, which takes as long as
                                   the search for the keys. 404, 409
    POST <topic>/verify-erasure    200 verdict: the broker reads the logs again; body: {"certificate":
                                   the whole certificate, "key": hexadecimal digits, may be left out}
    GET  /v1/compaction/erasures               200 {"erasures": [...]}, the oldest first; ?topic=T
    GET  /v1/compaction/erasures/<id>          200 erasure; 404
    DELETE /v1/compaction/erasures/<id>        200 {}: it is forgotten, and its tombstones stay; 404
    GET  /v1/compaction/erasures/<id>/certificate   200 the newest certificate; 404; 409 if there is none

for <topic> = /v1/compaction/topics/<topic>. An erasure: {"id", "topic", "state", "risk": "none", "at
risk" or "overdue", "requested_ms", "deadline_ms", "expected_ms": null if not known, "ended_ms",
"is_final", "is_certified", "partitions": [{"partition", "below", "had_records", "needs"}, ...],
"holders": [{"partition", "text", "remedy", "until_ms"}, ...]}. A verdict: {"holds", "id", "state",
"problems": [sentence, ...], "notes": [sentence, ...], "partitions": [{"partition", "below",
"records_read", "bytes_read"}, ...]}. No answer has a key.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from cleaner.pacing.meter import CleaningAborted
from protocol.wire.errors import ProtocolError
from server.admin.compaction import Compaction
from server.admin.compaction_answers import Handler, refusals_as_json
from server.admin.http_rules import ERASE, ERASURE, ERASURES, VERIFY_ERASURE
from server.admin.large_answers import LargeAnswers
from server.admin.refusals import CompactionRefused, serving
from server.erasure.certificate import BadCertificate, checked
from server.erasure.erasures import Erasures
from server.erasure.intake import ErasureRefused
from server.erasure.tracked import Tracked
from server.erasure.verdict import Verifier
from server.runtime.clock import Clock
from server.runtime.sliced_json import Json, Rows

WITHIN_MS_MAX = 3650 * 86_400_000
"""Ten years."""


class ErasureRoutes:
    """Answers the requests above."""

    def __init__(self, compaction: Callable[[], Compaction | str], clock: Clock) -> None:
        """
        Args:
            compaction: as in `CompactionRoutes`.
        """
        self._compaction = compaction
        self._clock = clock
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.post(ERASE, refusing(self._erase)),
            web.post(VERIFY_ERASURE, refusing(self._verify)),
            web.get(ERASURES, refusing(self._list)),
            web.get(ERASURE, refusing(self._show)),
            web.delete(ERASURE, refusing(self._forget)),
            web.get(ERASURE + "/certificate", refusing(self._certificate)),
        ]

    @property
    def _erasures(self) -> Erasures:
        return serving(self._compaction()).erasures

    async def _erase(self, request: web.Request) -> web.Response:
        erasures, body = self._erasures, await _object_in(request)
        keys, within_ms = _keys_in(body), body.get("within_ms")
        if not isinstance(within_ms, int) or not 0 < within_ms <= WITHIN_MS_MAX:
            raise CompactionRefused(400, f"within_ms is a number from 1 to {WITHIN_MS_MAX}")
        made = await erasures.request(request.match_info["topic"], keys, within_ms)
        tracked = [each for one in made if (each := erasures.get(one.id)) is not None]
        return await self._answers.of({"erasures": self._rows(tracked)}, status=201)

    async def _list(self, request: web.Request) -> web.Response:
        topic = request.query.get("topic")
        chosen = [
            each for each in self._erasures.all() if topic is None or each.erasure.topic == topic
        ]
        return await self._answers.of({"erasures": self._rows(chosen)})

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(erasure_json(self._of(request), self._clock.now_ms()))

    async def _forget(self, request: web.Request) -> web.Response:
        await self._erasures.forget(request.match_info["erasure"])
        return web.json_response({})

    async def _certificate(self, request: web.Request) -> web.Response:
        erasure = self._of(request).erasure
        if erasure.certificate is None:
            raise CompactionRefused(
                409, f"no certificate is issued yet: erasure {erasure.id} is {erasure.state}"
            )
        return web.json_response(erasure.certificate)

    async def _verify(self, request: web.Request) -> web.Response:
        compaction, body = serving(self._compaction()), await _object_in(request)
        try:
            said = checked(body.get("certificate"))
        except BadCertificate as error:
            raise CompactionRefused(400, f"the certificate cannot be verified: {error}") from error
        if said["topic"] != request.match_info["topic"]:
            raise CompactionRefused(400, f"the certificate is about topic {said['topic']}")
        key = None if body.get("key") is None else _key_in(body["key"])
        public_key = str(body["certificate"]["public_key"])
        verifier = Verifier(compaction.erasures, compaction.topics)
        return web.json_response(await verifier.verdict(said, public_key, key))

    def _rows(self, tracked: list[Tracked]) -> Rows:
        now_ms = self._clock.now_ms()
        return Rows(lambda each: erasure_json(each, now_ms), tracked)

    def _of(self, request: web.Request) -> Tracked:
        erasure_id = request.match_info["erasure"]
        tracked = self._erasures.get(erasure_id)
        if tracked is None:
            raise CompactionRefused(404, f"there is no erasure {erasure_id}")
        return tracked


def erasure_json(tracked: Tracked, now_ms: int) -> Json:
    """Returns an erasure as JSON."""
    erasure, found = tracked.erasure, tracked.forecast
    needs = [each.next.value for each in tracked.needs] or [""] * len(erasure.partitions)
    is_final = erasure.state.is_final
    return {
        "id": erasure.id,
        "topic": erasure.topic,
        "state": erasure.state.value,
        "risk": tracked.risk(now_ms).value,
        "requested_ms": erasure.requested_ms,
        "deadline_ms": erasure.deadline_ms,
        "expected_ms": None if is_final or found.is_open else found.earliest_ms,
        "ended_ms": erasure.ended_ms,
        "is_final": is_final,
        "is_certified": erasure.certificate is not None,
        "partitions": [
            {
                "partition": number,
                "below": part.offset,
                "had_records": part.has_tombstone,
                "needs": None if is_final else need or None,
            }
            for number, (part, need) in enumerate(zip(erasure.partitions, needs, strict=True))
        ],
        "holders": [
            {
                "partition": each.partition,
                "text": each.text,
                "remedy": each.remedy,
                "until_ms": each.until_ms,
            }
            for each in ([] if is_final else tracked.holders)
        ],
    }


async def _object_in(request: web.Request) -> dict[str, Any]:
    """Returns the JSON object that a request carries. Raises CompactionRefused."""
    try:
        value = json.loads(await request.read())
    except web.HTTPRequestEntityTooLarge as error:
        raise CompactionRefused(413, "the request is too large: send fewer keys") from error
    except (ValueError, RecursionError) as error:
        raise CompactionRefused(400, "send a JSON object") from error
    if not isinstance(value, dict):
        raise CompactionRefused(400, "send a JSON object")
    return value


def _keys_in(body: dict[str, Any]) -> list[bytes]:
    keys = body.get("keys")
    if not isinstance(keys, list):
        raise CompactionRefused(400, "keys is a list of keys in hexadecimal digits")
    return [_key_in(key) for key in keys]


def _key_in(text: object) -> bytes:
    """Returns a key. A refusal does not repeat it."""
    try:
        if isinstance(text, str):
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise CompactionRefused(400, "a key is a text of hexadecimal digits")


def refusing(handler: Handler) -> Handler:
    """Returns the handler wrapped so that refusals about erasures become JSON answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ErasureRefused as refused:
            raise CompactionRefused(refused.status, str(refused)) from refused
        except CleaningAborted as reason:
            raise CompactionRefused(409, f"ask again: {reason}") from reason
        except ProtocolError as damage:
            raise CompactionRefused(500, str(damage)) from damage

    return refusals_as_json(answer)
