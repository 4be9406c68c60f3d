"""Leases of logs for cleaning: take them from the broker, renew them, give them up at the end.

A lease that is not renewed ends by itself, and the broker's own cleaner takes the log again: so a job
that dies does no harm. `commit` sends the result of a pass. The other side is the broker:
`server/admin/lease_routes.py` receives these requests and passes them on to `server/admin/leases.py`,
which keeps the leases; `cleaner/remote/commit.py` verifies a result and swaps the segments.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from cleaner.remote.plan import RemotePlan, RemoteResult
from cleaner.remote.strict_json import RefusedJson
from cli.base.command_end import EXIT_FAILED
from cli.compact.client import CallFailed, CompactionClient

RENEWALS = 3
"""A lease is renewed this many times within its lifetime."""

Json = dict[str, Any]


@dataclass(slots=True)
class Lease:
    """A lease on a log, which may be cleaned while the lease is renewed."""

    plan: RemotePlan
    seconds: float
    """Time without a renewal after which it ends."""
    lost: str | None = None
    """The reason why the lease was lost."""

    @property
    def path(self) -> str:
        """Its path in the broker's HTTP API."""
        return f"{_where(self.plan.topic, self.plan.partition)}/lease/{self.plan.lease}"


class HeldLeases:
    """The leases of one job; a context manager that gives the remaining ones up at the end."""

    __slots__ = ("_client", "_held", "_renewing", "all_lost")

    def __init__(self, client: CompactionClient) -> None:
        # Constant after construction.
        self._client = client
        # State.
        self._held: list[Lease] = []
        self._renewing: list[asyncio.Task[None]] = []
        self.all_lost = asyncio.Event()
        """Set when all leases are lost or ended, so that further work is useless."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._renewing:
            task.cancel()
        for lease in list(self._held):
            # The lease ends by itself, only later.
            with suppress(CallFailed):
                await self._client.call("DELETE", lease.path)

    async def take(self, topic: str, partition: int) -> Lease:
        """Lease a partition's log.

        Raises:
            CallFailed: the broker refused, or has made a plan that this release cannot execute.
        """
        where = f"{_where(topic, partition)}/lease"
        answer = await self._client.call("POST", where)
        try:
            plan = RemotePlan.from_json(json.dumps(answer["plan"]))
        except RefusedJson as refused:
            # The lease ends by itself, only later.
            with suppress(CallFailed):
                await self._client.call("DELETE", f"{where}/{answer['lease']}")
            raise CallFailed(
                EXIT_FAILED, f"{refused}; use the release of Kompakt that the broker runs"
            ) from refused
        lease = Lease(plan, float(answer["seconds"]))
        self._held.append(lease)
        self._renewing.append(asyncio.create_task(self._renew(lease)))
        return lease

    async def commit(self, lease: Lease, result: RemoteResult) -> Json:
        """Let the broker verify a result and swap it in. Returns the broker's report.

        Raises:
            CallFailed: the broker refused, or the lease was lost.
        """
        if lease.lost is not None:
            raise CallFailed(EXIT_FAILED, lease.lost)
        job = await self._client.call("POST", f"{lease.path}/commit", body=result.to_json())
        # The lease ends with the commit's job, even if that fails.
        self._held.remove(lease)
        (part,) = (await self._client.finished(job))["partitions"]
        if part["error"] is not None:
            raise CallFailed(EXIT_FAILED, part["error"])
        return dict(part["report"])

    async def _renew(self, lease: Lease) -> None:
        while lease in self._held:
            await asyncio.sleep(lease.seconds / RENEWALS)
            try:
                await self._client.call("POST", f"{lease.path}/renew")
            except CallFailed as failed:
                # A broker that does not answer may be back before the lease ends.
                if failed.status and lease in self._held:
                    self._lose(lease, str(failed))

    def _lose(self, lease: Lease, why: str) -> None:
        lease.lost = why
        self._held.remove(lease)
        if not self._held:
            self.all_lost.set()


async def partitions_of(client: CompactionClient, targets: Iterable[str]) -> list[tuple[str, int]]:
    """Returns the partitions that TOPIC or TOPIC-PARTITION name, each once. Raises CallFailed."""
    found: dict[tuple[str, int], None] = {}
    for target in targets:
        answer = await client.call_on("GET", target, "/explain")
        found |= {(each["topic"], each["partition"]): None for each in answer["partitions"]}
    return list(found)


def _where(topic: str, partition: int) -> str:
    return f"/topics/{quote(topic, safe='')}/partitions/{partition}"
