"""Leases of logs for their cleaning: taken from the broker, renewed meanwhile, given up at the end.

A lease that is not renewed ends by itself, and the broker's own cleaner takes the log again: so whoever
dies here, in whatever way, has done no harm. `server/lease_routes.py` is the other side.
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

from cleaner.remote_plan import RemotePlan, RemoteResult
from server.command_end import EXIT_FAILED
from server.compact_client import CallFailed, CompactionClient

RENEWALS = 3
"""So often a lease is renewed in the time after which it would end."""

Json = dict[str, Any]


@dataclass(slots=True)
class Lease:
    """A log that is ours to clean, as long as it is renewed."""

    plan: RemotePlan
    seconds: float
    """After so long without a renewal it ends."""
    lost: str | None = None
    """Why it is ours no more."""

    @property
    def path(self) -> str:
        """Where the broker answers for it."""
        return f"{_where(self.plan.topic, self.plan.partition)}/lease/{self.plan.lease}"


class CleaningLeases:
    """The leases of one job; a context, at whose end those that are left are given up."""

    __slots__ = ("_client", "_held", "_renewing", "all_lost")

    def __init__(self, client: CompactionClient) -> None:
        # Constant after construction.
        self._client = client
        # State.
        self._held: list[Lease] = []
        self._renewing: list[asyncio.Task[None]] = []
        self.all_lost = asyncio.Event()
        """Set once none of the leases that were taken is left: work goes on in vain."""

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
            # It ends by itself, only later.
            with suppress(CallFailed):
                await self._client.call("DELETE", lease.path)

    async def take(self, topic: str, partition: int) -> Lease:
        """Lease a partition's log. Raises CallFailed."""
        answer = await self._client.call("POST", f"{_where(topic, partition)}/lease")
        lease = Lease(RemotePlan.from_json(json.dumps(answer["plan"])), float(answer["seconds"]))
        self._held.append(lease)
        self._renewing.append(asyncio.create_task(self._renew(lease)))
        return lease

    async def commit(self, lease: Lease, result: RemoteResult) -> Json:
        """Have the broker verify a result and swap it in; what it did, as its report says.

        Raises:
            CallFailed: it did not, or the lease was lost.
        """
        if lease.lost is not None:
            raise CallFailed(EXIT_FAILED, lease.lost)
        job = await self._client.call("POST", f"{lease.path}/commit", body=result.to_json())
        # The lease ends with that job, however it goes.
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
                # A broker that does not answer may be back in time.
                if failed.status and lease in self._held:
                    self._lose(lease, str(failed))

    def _lose(self, lease: Lease, why: str) -> None:
        lease.lost = why
        self._held.remove(lease)
        if not self._held:
            self.all_lost.set()


async def partitions_of(client: CompactionClient, targets: Iterable[str]) -> list[tuple[str, int]]:
    """The partitions that TOPIC or TOPIC-PARTITION name, each once. Raises CallFailed."""
    found: dict[tuple[str, int], None] = {}
    for target in targets:
        answer = await client.call_on("GET", target, "/explain")
        found |= {(each["topic"], each["partition"]): None for each in answer["partitions"]}
    return list(found)


def _where(topic: str, partition: int) -> str:
    return f"/topics/{quote(topic, safe='')}/partitions/{partition}"
