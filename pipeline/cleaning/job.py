"""Cleans partitions outside of the broker's machine: lease -> execute -> commit -> report.

    lease    `leases.py` asks the broker for the plan of a pass
    execute  `execute.py` makes the cleaned segments with Spark, in the lease's folder
    commit   `leases.py` sends the result to the broker (`server/admin/lease_routes.py`), which
             verifies it and swaps the segments (`cleaner/remote/commit.py`)

A partition that cannot be leased, or that fails, fails alone. However the job ends, it releases its
leases.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleaner.remote.plan import RemotePlan
from cli.base.command_end import EXIT_FAILED, complain
from cli.base.output import print_json
from cli.compact.client import CallFailed, CompactionClient, connected
from cli.compact.output import name_of, print_reports
from pipeline.cleaning.execute import LogPass, execute
from pipeline.cleaning.leases import HeldLeases, Lease, partitions_of
from pipeline.spark.thread import Sessions, SparkThread, Stopped

Json = dict[str, Any]
REFUSED_ONE = (404, 409)
"""HTTP status for a partition that cannot be leased; any other failure concerns all partitions."""


@dataclass(slots=True)
class Part:
    """The progress and the result of one partition."""

    topic: str
    partition: int
    lease: Lease | None = None
    error: str | None = None
    report: Json | None = None

    def as_json(self) -> Json:
        state = "failed" if self.error is not None else "done"
        return {
            "topic": self.topic,
            "partition": self.partition,
            "state": state,
            "error": self.error,
            "report": self.report,
        }


async def clean(
    url: str,
    targets: Sequence[str],
    sessions: Sessions,
    *,
    token: str | None,
    log_dirs: Mapping[str, str],
    as_json: bool,
) -> int:
    """Clean, and print the results. Returns the exit code.

    Args:
        token: the broker's token for remote cleaners; None to log in with the command's access.
        log_dirs: the paths of the broker's log directories on the driver and the executors, if they
            differ there.
    """
    started = time.monotonic()
    async with (
        connected(url, headers=_headers(token)) as client,
        HeldLeases(client) as leases,
    ):
        parts = await _leased(client, leases, targets)
        await _execute_and_commit(leases, parts, sessions, log_dirs)
    for part in parts:
        if part.report is not None:
            part.report["seconds"] = round(time.monotonic() - started, 3)
    return _conclude(parts, as_json=as_json)


def _headers(token: str | None) -> dict[str, str] | None:
    return None if token is None else {"Authorization": f"Bearer {token}"}


async def _leased(
    client: CompactionClient, leases: HeldLeases, targets: Sequence[str]
) -> list[Part]:
    parts = [Part(*each) for each in await partitions_of(client, targets)]
    for part in parts:
        try:
            part.lease = await leases.take(part.topic, part.partition)
        except CallFailed as refused:
            if refused.status not in REFUSED_ONE:
                raise
            part.error = str(refused)
    return parts


async def _execute_and_commit(
    leases: HeldLeases,
    parts: Sequence[Part],
    sessions: Sessions,
    log_dirs: Mapping[str, str],
) -> None:
    held = [(part, part.lease) for part in parts if part.lease is not None]
    if not held:
        return
    thread = SparkThread(sessions)
    plans = [_with_local_directory(lease.plan, log_dirs) for _, lease in held]
    try:
        passes = await thread.run(
            lambda session: execute(session, plans, enter=lambda _step: thread.check()),
            leases.all_lost,
        )
    except Stopped:
        for part, lease in held:
            part.error = lease.lost
        return
    for (part, lease), done in zip(held, passes, strict=True):
        await _commit(leases, part, lease, done)


async def _commit(leases: HeldLeases, part: Part, lease: Lease, done: LogPass) -> None:
    if done.error is not None:
        part.error = lease.lost or done.error
        return
    try:
        part.report = await leases.commit(lease, done.result)
    except CallFailed as refused:
        part.error = str(refused)
        return
    part.report["bytes_read"] += done.bytes_read
    part.report["bytes_written"] += done.bytes_written
    part.report["sidecars_built"] = done.sidecars_built


def _with_local_directory(plan: RemotePlan, log_dirs: Mapping[str, str]) -> RemotePlan:
    """Returns the plan with the local path of its log directory."""
    return plan.moved_to(log_dirs.get(plan.log_dir, plan.log_dir))


def _conclude(parts: Sequence[Part], *, as_json: bool) -> int:
    told = [part.as_json() for part in parts]
    is_done = all(part.error is None for part in parts)
    if as_json:
        print_json({"is_done": is_done, "partitions": told})
    for part in told:
        if part["error"] is not None:
            complain(f"{name_of(part)}: {part['error']}")
    if not as_json:
        print_reports([part["report"] for part in told if part["report"]])
    return 0 if is_done else EXIT_FAILED
