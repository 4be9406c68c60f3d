"""`kompakt compact now` and other jobs of the broker: begin one, follow it, and say what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from cleaner.text import duration_text
from server.command_end import EXIT_FAILED, complain
from server.command_output import print_json, progress_bars
from server.compact_client import CompactionClient, connected
from server.compact_output import (
    name_of,
    print_digests,
    print_key,
    print_plan,
    print_reports,
)

Json = dict[str, Any]

WAITING = "waits for its turn; kompakt compact status shows what runs"


async def clean_now(url: str, target: str, *, force: bool, as_json: bool) -> int:
    """Clean and wait; the exit code."""
    async with connected(url) as client:
        query = {"force": "true"} if force else None
        try:
            job = await client.call_on("POST", target, "/now", query)
            job = await _follow(client, job, as_json=as_json)
        except asyncio.CancelledError:
            complain("the pass goes on in the broker; `kompakt compact status` shows it")
            raise
    return _conclude(job, as_json=as_json)


async def plan(url: str, target: str, *, as_json: bool) -> int:
    """Find out what `clean_now` would do; the exit code."""
    return await _look(url, target, "/plan", None, as_json=as_json)


async def find_key(url: str, target: str, query: Mapping[str, str], *, as_json: bool) -> int:
    """List what is on disk of a key; the exit code."""
    return await _look(url, target, "/find-key", query, as_json=as_json)


async def digest(url: str, target: str, *, end_offset: int | None, as_json: bool) -> int:
    """Sum the last values; the exit code."""
    query = {} if end_offset is None else {"end_offset": str(end_offset)}
    return await _look(url, target, "/digest", query, as_json=as_json)


async def _look(
    url: str, target: str, action: str, query: Mapping[str, str] | None, *, as_json: bool
) -> int:
    """A job that changes nothing: it ends when nobody waits for it any more."""
    async with connected(url) as client:
        job = await client.call_on("POST", target, action, query)
        try:
            job = await _follow(client, job, as_json=as_json)
        except asyncio.CancelledError:
            await client.call("DELETE", f"/jobs/{job['id']}")
            complain("given up; nothing was changed")
            raise
    return _conclude(job, as_json=as_json)


async def _follow(client: CompactionClient, job: Json, *, as_json: bool) -> Json:
    """Look at a job until it is over, and show how far it is."""
    name, told = TextColumn("{task.description}"), TextColumn("{task.fields[told]}")
    with progress_bars(name, BarColumn(), TaskProgressColumn(), told, is_shown=not as_json) as bars:
        tasks = {
            name_of(part): bars.add_task(name_of(part), total=None, told=WAITING)
            for part in job["partitions"]
        }

        def show(looked_at: Json) -> None:
            for part in looked_at["partitions"]:
                _show(bars, tasks[name_of(part)], part)

        return await client.finished(job, on_look=show)


def _show(bars: Progress, task: TaskID, part: Json) -> None:
    progress = part["progress"]
    if progress is None:
        return
    is_running = part["state"] == "running"
    doing = progress["phase"] if is_running else part["state"]
    told = f"{doing}, {duration_text(progress['seconds'])}"
    if is_running and progress["eta_seconds"] is not None:
        told += f", about {duration_text(progress['eta_seconds'])} left"
    total = progress["bytes_planned"] or None
    bars.update(task, completed=progress["bytes_done"], total=total, told=told)


def _conclude(job: Json, *, as_json: bool) -> int:
    """Say what came of a job; the exit code."""
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
