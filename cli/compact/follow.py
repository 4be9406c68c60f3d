"""Starts jobs of the broker such as `kompakt compact now`, follows them and prints their outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from cleaner.rules.text import duration_text
from cli.base.command_end import EXIT_FAILED, complain
from cli.base.output import print_json, progress_bars
from cli.compact.client import CompactionClient, connected
from cli.compact.output import (
    name_of,
    print_digests,
    print_key,
    print_plan,
    print_reports,
)

Json = dict[str, Any]

WAITING = "waiting for a worker; kompakt compact status shows what is running"


async def clean_now(url: str, target: str, *, force: bool, as_json: bool) -> int:
    """Clean a target, wait until it is done, and return the exit code."""
    async with connected(url) as client:
        query = {"force": "true"} if force else None
        try:
            job = await client.call_on("POST", target, "/now", query)
            job = await _follow(client, job, as_json=as_json)
        except asyncio.CancelledError:
            complain("the pass continues in the broker; `kompakt compact status` shows it")
            raise
    return _conclude(job, as_json=as_json)


async def plan(url: str, target: str, *, as_json: bool) -> int:
    """Print what `clean_now` would do, and return the exit code."""
    return await _run_read_only(url, target, "/plan", None, as_json=as_json)


async def find_key(url: str, target: str, query: Mapping[str, str], *, as_json: bool) -> int:
    """List a key's records that are on disk, and return the exit code."""
    return await _run_read_only(url, target, "/find-key", query, as_json=as_json)


async def digest(url: str, target: str, *, end_offset: int | None, as_json: bool) -> int:
    """Print the digests of the last values, and return the exit code."""
    query = {} if end_offset is None else {"end_offset": str(end_offset)}
    return await _run_read_only(url, target, "/digest", query, as_json=as_json)


async def _run_read_only(
    url: str, target: str, action: str, query: Mapping[str, str] | None, *, as_json: bool
) -> int:
    """Run a job that changes nothing. Ctrl-C deletes it."""
    async with connected(url) as client:
        job = await client.call_on("POST", target, action, query)
        job = await follow_read_only(client, job, as_json=as_json)
    return _conclude(job, as_json=as_json)


async def follow_read_only(client: CompactionClient, job: Json, *, as_json: bool) -> Json:
    """Follow a job that changes nothing, and return its final state. Ctrl-C deletes it."""
    try:
        return await _follow(client, job, as_json=as_json)
    except asyncio.CancelledError:
        await client.call("DELETE", f"/jobs/{job['id']}")
        complain("stopped; nothing was changed")
        raise


async def _follow(client: CompactionClient, job: Json, *, as_json: bool) -> Json:
    """Poll a job until it is over, with a progress bar per partition."""
    name, state = TextColumn("{task.description}"), TextColumn("{task.fields[state]}")
    with progress_bars(
        name, BarColumn(), TaskProgressColumn(), state, is_shown=not as_json
    ) as bars:
        tasks = {
            name_of(part): bars.add_task(name_of(part), total=None, state=WAITING)
            for part in job["partitions"]
        }

        def update(current: Json) -> None:
            for part in current["partitions"]:
                _update_bar(bars, tasks[name_of(part)], part)

        return await client.finished(job, on_poll=update)


def _update_bar(bars: Progress, task: TaskID, part: Json) -> None:
    progress = part["progress"]
    if progress is None:
        return
    is_running = part["state"] == "running"
    phase = progress["phase"] if is_running else part["state"]
    state = f"{phase}, {duration_text(progress['seconds'])}"
    if is_running and progress["eta_seconds"] is not None:
        state += f", about {duration_text(progress['eta_seconds'])} left"
    total = progress["bytes_planned"] or None
    bars.update(task, completed=progress["bytes_done"], total=total, state=state)


def _conclude(job: Json, *, as_json: bool) -> int:
    """Print the outcome of a job, and return the exit code."""
    if as_json:
        print_json(job)
    for part in job["partitions"]:
        if part["error"] is not None:
            complain(f"{name_of(part)}: {part['state']}: {part['error']}")
        elif not as_json and part["report"] is None:
            _print_outcome(part)
    if not as_json:
        print_reports([part["report"] for part in job["partitions"] if part["report"]])
        print_digests([part for part in job["partitions"] if part["digest"]])
    return 0 if job["is_done"] else EXIT_FAILED


def _print_outcome(part: Json) -> None:
    if part["plan"] is not None:
        print_plan(part["plan"])
    elif part["key"] is not None:
        print_key(name_of(part), part["key"])
