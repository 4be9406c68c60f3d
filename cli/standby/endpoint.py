"""A standby's HTTP endpoint.

GET /v1/standby          200, what `kompakt standby status` prints
POST /v1/standby/promotion
                         200 with the report once the standby serves clients as a broker; 409 with what
                         is missing; 403 unless it comes from this machine. The body may be
                         {"force": true, "wait_seconds": 60}
POST /v1/standby/verification
                         200, after a comparison of the coordinators' copies with the leader's, a
                         partition at a time; 502 if the leader cannot be reached
GET /metrics             200, Prometheus' text
GET /health/live         200 while the process answers at all
GET /health/ready        200 while it has all that the leader had a moment ago, metadata and
                         coordinators' topics, else 503 with what is missing
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator

import msgspec
from aiohttp import web
from prometheus_client.core import Metric as Family

from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.standby.coordinator_following import CoordinatorFollowing
from cli.standby.progress import Progress, State
from cli.standby.takeover import WAIT_SECONDS, Takeover, TakeoverRefused
from metrics import standby_names
from metrics.collector import Scraper
from metrics.families import counter, gauge
from metrics.http_endpoint import HttpEndpoint
from server.admin.http_guard import refusal
from server.config.listeners.addresses import HttpListener
from server.standby.promotion import Report

STATUS = "/v1/standby"
VERIFICATION = f"{STATUS}/verification"
PROMOTION = f"{STATUS}/promotion"


class _Asked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request for the promotion."""

    force: bool = False
    wait_seconds: float = WAIT_SECONDS


class Promotions:
    """Answers requests for the promotion, which outlive the standby: the broker's start reports."""

    def __init__(self, takeover: Takeover | None) -> None:
        """
        Args:
            takeover: None if the standby follows only the metadata and the coordinators' topics.
        """
        # Constant after construction
        self._takeover = takeover
        self._ended: asyncio.Future[Report | str] = asyncio.get_running_loop().create_future()
        """The report once the broker serves, or why it could not start."""

    def ended(self, result: Report | str) -> None:
        """Answer waiting requests with the report, or why the broker could not start."""
        if not self._ended.done():
            self._ended.set_result(result)

    async def answer(self, body: bytes) -> web.Response:
        """Promote the standby, and return the answer."""
        if self._takeover is None:
            reason = "it follows the metadata only: start it without --metadata-only"
            return web.json_response({"error": reason, "missing": []}, status=409)
        try:
            asked = msgspec.json.decode(body or b"{}", type=_Asked)
            await self._takeover.promote(is_forced=asked.force, wait_s=asked.wait_seconds)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return web.json_response({"error": str(error), "missing": []}, status=400)
        except TakeoverRefused as refused:
            return web.json_response(
                {"error": str(refused), "missing": refused.missing}, status=409
            )
        result = await asyncio.shield(self._ended)
        if isinstance(result, str):
            return web.json_response({"error": result, "missing": []}, status=500)
        return web.json_response(msgspec.to_builtins(result))


async def open_endpoint(
    address: HttpListener,
    progress: Progress,
    coordinators: CoordinatorFollowing,
    promotions: Promotions,
) -> HttpEndpoint:
    """Open the endpoint.

    Raises:
        CommandFailed: the address is in use or does not belong to this machine.
    """

    async def status(_: web.Request) -> web.Response:
        return web.json_response(progress.as_json())

    async def verification(_: web.Request) -> web.Response:
        try:
            return web.json_response({"partitions": await coordinators.verify()})
        except CommandFailed as error:
            return web.json_response({"error": str(error)}, status=502)

    async def promotion(request: web.Request) -> web.Response:
        if not _is_local(request):
            reason = "a standby is promoted from its own machine only"
            return web.json_response({"error": reason, "missing": []}, status=403)
        return await promotions.answer(await request.read())

    loop = asyncio.get_running_loop()
    names = frozenset(each.lower() for each in (socket.gethostname(), address.host) if each)
    endpoint = HttpEndpoint(
        Scraper(StandbyCollector(progress)),
        not_ready=lambda: progress.not_ready,
        run_in_thread=lambda work: loop.run_in_executor(None, work),
        guard=lambda request: refusal(
            request.headers.get("Host"), request.headers.get("Origin"), names
        ),
        routes=[
            web.get(STATUS, status),
            web.post(VERIFICATION, verification),
            web.post(PROMOTION, promotion),
        ],
    )
    try:
        await endpoint.open(address.host, address.port)
    except OSError as error:
        await endpoint.close()
        reason = error.strerror or error
        raise CommandFailed(
            EXIT_FAILED, f"cannot listen on {address}: {reason} (--http)"
        ) from error
    return endpoint


def _is_local(request: web.Request) -> bool:
    """Returns whether a request comes from this machine: the endpoint has no logins."""
    try:
        return ipaddress.ip_address(request.remote or "").is_loopback
    except ValueError:
        return False


class StandbyCollector:
    """Turns the progress into Prometheus' families, in any thread: it only reads single values."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Family]:
        """Yields the families."""
        progress = self._progress
        facts, state, lag = progress.facts, progress.state, progress.lag
        yield gauge(standby_names.STATE, [((each.value,), float(each is state)) for each in State])
        yield gauge(standby_names.END, [((), facts.end)])
        yield gauge(standby_names.LAG, [] if lag is None else [((), lag)])
        yield gauge(standby_names.DISK_BYTES, [((), facts.disk_bytes)])
        yield counter(standby_names.INSTALLS, [((), facts.installs)])
        topics = progress.coordinators
        yield gauge(standby_names.COPY_LAG, [((each.name,), each.lag) for each in topics])
        yield gauge(
            standby_names.COPY_WAITING, [((each.name,), len(each.waiting)) for each in topics]
        )
        yield gauge(
            standby_names.COPY_DISK_BYTES, [((each.name,), each.disk_bytes) for each in topics]
        )
        yield counter(
            standby_names.COPY_INSTALLS, [((each.name,), each.installs) for each in topics]
        )
