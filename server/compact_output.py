"""What `kompakt compact ...` prints: the broker's JSON, as text for people."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

Json = Mapping[str, Any]

WIDTH_UNLESS_TERMINAL = 160


def print_json(answer: Json) -> None:
    typer.echo(json.dumps(answer, indent=2))


def name_of(part: Json) -> str:
    """The partition as TOPIC-N."""
    return f"{part['topic']}-{part['partition']}"


def size(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds with a unit."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def moment(ms: int) -> str:
    """Wall time, UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))


def print_report(report: Json) -> None:
    """What a pass did."""
    name = name_of(report)
    if report["planned_end_offset"] == report["start_offset"] and not report["groups"]:
        typer.echo(f"{name}: nothing may be cleaned now; kompakt compact explain {name} says why")
        return
    typer.echo(
        f"{name}: cleaned [{report['start_offset']}, {report['end_offset']}),"
        f" {size(report['bytes_before'])} -> {size(report['bytes_after'])},"
        f" {report['records_before']} -> {report['records_after']} records,"
        f" read {size(report['bytes_read'])}, written {size(report['bytes_written'])},"
        f" {duration(report['seconds'])} ({duration(report['throttled_seconds'])} throttled)"
    )


def print_plan(plan: Json) -> None:
    """What a pass would do."""
    report = plan["report"]
    freed = report["bytes_before"] - report["bytes_after"]
    typer.echo(
        f"{name_of(report)}: a pass now would clean"
        f" [{report['start_offset']}, {report['planned_end_offset']})"
        + (", after the active segment has rolled" if plan["rolls_active_segment"] else "")
    )
    typer.echo(
        f"  frees {size(freed)} of {size(report['bytes_before'])},"
        f" {report['records_before'] - report['records_after']}"
        f" of {report['records_before']} records"
    )
    for reason, count in plan["dies"].items():
        typer.echo(
            f"  {reason}: {count['records']} records, {size(count['record_bytes'])} uncompressed"
        )
    typer.echo(
        f"  reads {size(report['bytes_read'])}, writes {size(report['bytes_written'])},"
        f" takes about {duration(report['seconds'])};"
        f" {report['keys_mapped']} keys, at most {size(plan['map_bytes_max'])} for their map"
    )
    if plan["groups"]:
        _print_table(
            ("offsets", "segments", "bytes", "left", "dies", "segments after"),
            [_group_row(group) for group in plan["groups"]],
        )
    if plan["untouched_segments"]:
        typer.echo(f"  {len(plan['untouched_segments'])} segments stay as they are")


def _group_row(group: Json) -> tuple[str, ...]:
    sources = group["sources"]
    dies = ", ".join(f"{count['records']} {reason}" for reason, count in group["dies"].items())
    return (
        f"[{sources[0]['base_offset']}, {sources[-1]['end_offset']})",
        str(len(sources)),
        size(group["bytes_before"]),
        size(group["bytes_after"]),
        dies or "nothing",
        str(len(group["outputs"])) if group["is_replaced"] else "unchanged",
    )


def print_paused(paused: Json) -> None:
    """What is paused."""
    if paused["everything_since_ms"] is not None:
        typer.echo(f"all cleaning is paused since {moment(paused['everything_since_ms'])}")
    for each in paused["named"]:
        name = each["topic"] if each["partition"] is None else name_of(each)
        typer.echo(f"{name} is paused since {moment(each['since_ms'])}")
    if paused["everything_since_ms"] is None and not paused["named"]:
        typer.echo("nothing is paused")


def print_status(status: Json) -> None:
    """The cleaner at one moment."""
    typer.echo(_throttle(status["throttle"], status["threads"]))
    print_paused(status["paused"])
    for running in status["running"]:
        typer.echo(_running(running))
    if not status["running"]:
        typer.echo("nothing runs")
    if status["queue"]:
        typer.echo(f"waiting for a worker: {status['queue_length']}")
        _print_table(
            ("partition", "why", "dirty ratio", "dirty", "waits since"),
            [_queue_row(waiting) for waiting in status["queue"]],
        )
    for entry in status["quarantined"]:
        typer.echo(
            f"{name_of(entry)} rests after {entry['failures']} failures,"
            f" tried again in {duration(entry['retry_in_seconds'])}: {entry['reason']}"
        )
    if status["last_passes"]:
        typer.echo("the last pass of each partition")
        for report in status["last_passes"]:
            typer.echo("  ", nl=False)
            print_report(report)


def _throttle(throttle: Json, threads: int) -> str:
    if throttle["is_lifted_for_disk_pressure"]:
        return f"{threads} threads; a disk is nearly full, so that no budget holds"
    limits = [
        f"{name} {size(throttle[key])}/s"
        for name, key in (
            ("I/O", "total_bytes_per_second"),
            ("reads", "read_bytes_per_second"),
            ("writes", "write_bytes_per_second"),
            ("latency guard", "latency_guard_bytes_per_second"),
        )
        if throttle[key] is not None
    ]
    return f"{threads} threads; limits: {', '.join(limits) or 'none'}"


def _running(running: Json) -> str:
    progress = running["progress"]
    part = progress["bytes_done"] / max(progress["bytes_planned"], 1)
    left = progress["eta_seconds"]
    return (
        f"{name_of(running)}: {running['task']} runs ({running['reason']}), {part:.0%}"
        f" of {size(progress['bytes_planned'])}, {progress['phase']},"
        f" for {duration(progress['seconds'])} ({duration(progress['throttled_seconds'])} throttled)"
        + (f", {duration(left)} left" if left is not None else "")
    )


def _queue_row(waiting: Json) -> tuple[str, ...]:
    return (
        name_of(waiting),
        waiting["reason"],
        f"{waiting['dirty_ratio']:.2f}",
        size(waiting["dirty_bytes"]),
        duration(waiting["waited_ms"] / 1000),
    )


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=True)
    for title in titles:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_UNLESS_TERMINAL)
    console.print(table)
