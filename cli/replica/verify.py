"""Compares mirrors with their source, and prints what differs."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cleaner.rules.text import count_text, size_text
from cli.base.command_end import EXIT_FAILED, CommandFailed, complain
from cli.base.output import print_json, print_table, progress_bars
from cli.compact.client import POLL_SECONDS, CompactionClient, Json, connected
from cli.replica.change import ROOT, link_path

EQUAL, DIFFERENT = "equal", "different"
TITLES = ("PARTITION", "VERDICT", "COMPARED", "UP TO", "SOURCE", "MIRROR", "REASON")
DIFFERENCE_TITLES = ("PARTITION", "KEY", "DIFFERENCE", "AT SOURCE", "AT MIRROR")


async def verify_link(
    url: str, name: str, topic: str | None, *, wait_seconds: float, as_json: bool
) -> int:
    """Compare the mirrors of a link. Returns 0 if all are equal."""
    async with connected(url, root=ROOT) as client:
        topics = _chosen(await client.call("GET", link_path(name)), topic)
        jobs = [
            await _verify_topic(client, each, wait_seconds=wait_seconds, is_shown=not as_json)
            for each in topics
        ]
    verdicts = {job["verdict"] for job in jobs}
    if as_json:
        worst = next((each for each in (DIFFERENT, "unknown") if each in verdicts), EQUAL)
        print_json({"link": name, "verdict": worst, "topics": jobs})
    else:
        _print_jobs(jobs)
    return 0 if verdicts == {EQUAL} else EXIT_FAILED


def _chosen(link: Json, topic: str | None) -> list[str]:
    """Returns the topics to compare. Raises CommandFailed if there is none."""
    name, mirrored = link["name"], sorted({each["topic"] for each in link["partitions"]})
    if not mirrored:
        raise CommandFailed(
            EXIT_FAILED, f"link {name} has no mirror yet: kompakt replica status {name} says why"
        )
    if topic is not None and topic not in mirrored:
        raise CommandFailed(
            EXIT_FAILED,
            f"{topic} is no mirror of link {name}; its mirrors: {', '.join(mirrored[:10])}",
        )
    return mirrored if topic is None else [topic]


async def _verify_topic(
    client: CompactionClient, topic: str, *, wait_seconds: float, is_shown: bool
) -> Json:
    """Start a comparison, say its cost, and follow it. Ctrl-C stops it."""
    path = f"/mirrors/{quote(topic, safe='')}/verify"
    job = await client.call("POST", path, {"wait_ms": str(int(1000 * wait_seconds))})
    if is_shown:
        typer.echo(_cost_text(job), err=True)
    try:
        with progress_bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            is_shown=is_shown,
        ) as bars:
            bar = bars.add_task(topic, total=job["cost_bytes"] or None, state="waiting")
            while not job["is_over"]:
                await asyncio.sleep(POLL_SECONDS)
                job = await client.call("GET", f"{path}/{job['id']}")
                _update(bars, bar, job)
    except asyncio.CancelledError:
        await client.call("DELETE", f"{path}/{job['id']}")
        complain("stopped; nothing was changed")
        raise
    return job


def _cost_text(job: Json) -> str:
    cost = job["cost_bytes"]
    size = "all of it (the source does not say how much)" if cost is None else size_text(cost)
    return f"{job['topic']}: reads {size} at the source {job['source']}, and the mirror here"


def _update(bars: Progress, bar: TaskID, job: Json) -> None:
    phase = next((each["phase"] for each in job["partitions"] if each["state"] == "running"), "")
    done = sum(each["source"]["read_bytes"] for each in job["partitions"])
    bars.update(bar, completed=done, state=phase)


def _print_jobs(jobs: list[Json]) -> None:
    parts = [part for job in jobs for part in job["partitions"]]
    print_table(TITLES, [_row(each) for each in parts], texts=("PARTITION", "VERDICT", "REASON"))
    listed = [
        (
            _name(part),
            _key_text(each),
            each["kind"].replace("_", " "),
            _place(each["source_offset"]),
            _place(each["mirror_offset"]),
        )
        for part in parts
        if part["differences"]
        for each in part["differences"]["listed"]
    ]
    if listed:
        print_table(DIFFERENCE_TITLES, listed, texts=("PARTITION", "KEY", "DIFFERENCE"))
    rewritten = sum(part["rewritten"] for part in parts)
    if rewritten:
        typer.echo(
            f"{count_text(rewritten, 'key')} written again while the logs were read: not compared"
        )


def _row(part: Json) -> tuple[str, ...]:
    return (
        _name(part),
        part["verdict"],
        part["compares"],
        str(part["end_offset"]) if part["end_offset"] >= 0 else "-",
        str(part["source"]["count"]),
        str(part["mirror"]["count"]),
        part["reason"],
    )


def _name(part: Json) -> str:
    return f"{part['topic']}-{part['partition']}"


def _key_text(difference: Json) -> str:
    return "(unknown)" if difference["key"] is None else repr(difference["key"])


def _place(offset: int | None) -> str:
    return "-" if offset is None else str(offset)
