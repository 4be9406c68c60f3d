"""The HTTP routes that compare mirrors with their sources (docs/design/replication.md, "Verify").

    POST   /v1/mirrors/<topic>/verify?wait_ms=60000   202 job; 404 if it is no mirror; 409 if its source
                                                      does not answer, or too many jobs wait
    GET    /v1/mirrors/<topic>/verify/<job>           200 job; 404
    DELETE /v1/mirrors/<topic>/verify/<job>           200 job: it is stopped

`wait_ms` is how long each partition may take to get what the source has. A job: {"id", "link", "topic",
"source": addresses, "cost_bytes": to read at the source, or null, "is_over", "verdict", "partitions":
[{"topic", "partition", "state", "phase", "verdict": "equal", "different" or "unknown", "reason",
"compares": "last values" or "all records", "start_offset", "end_offset", "parts": how often both were
read, "rewritten": keys left out, "source" and "mirror": {"count", "digest", "read_bytes"},
"differences": null or {"count", "first_offset", "last_offset", "listed": [{"kind", "key", "key_hex",
"source_offset", "mirror_offset"}, ...]}}, ...]}
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from server.admin.compaction_answers import parse_number
from server.admin.http_rules import VERIFY
from server.admin.large_answers import LargeAnswers
from server.admin.link_routes import refusing
from server.admin.refusals import CompactionRefused, serving
from server.replication.verify.verifications import Verifications

WAIT_MS = 60_000
WAIT_MS_MAX = 24 * 3_600_000


class VerifyRoutes:
    """Answers the requests above."""

    def __init__(self, verifications: Callable[[], Verifications | str]) -> None:
        """
        Args:
            verifications: returns a sentence while the broker does not serve.
        """
        self._verifications = verifications
        self._answers = LargeAnswers()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.post(VERIFY, refusing(self._begin)),
            web.get(VERIFY + "/{job}", refusing(self._show)),
            web.delete(VERIFY + "/{job}", refusing(self._cancel)),
        ]

    async def _begin(self, request: web.Request) -> web.Response:
        text = request.query.get("wait_ms", str(WAIT_MS))
        wait_ms = parse_number(text)
        if wait_ms is None or wait_ms > WAIT_MS_MAX:
            raise CompactionRefused(
                400, f"wait_ms is a number from 0 to {WAIT_MS_MAX}, not {text!r}"
            )
        topic = request.match_info["topic"]
        job = await serving(self._verifications()).begin(topic, wait_seconds=wait_ms / 1000)
        return await self._answers.of(job.as_json(), status=202)

    async def _show(self, request: web.Request) -> web.Response:
        job_id = parse_number(request.match_info["job"])
        job = serving(self._verifications()).get(request.match_info["topic"], job_id)
        return await self._answers.of(job.as_json())

    async def _cancel(self, request: web.Request) -> web.Response:
        verifications, job_id = (
            serving(self._verifications()),
            parse_number(request.match_info["job"]),
        )
        job = verifications.get(request.match_info["topic"], job_id)
        verifications.cancel(job)
        return await self._answers.of(job.as_json())
