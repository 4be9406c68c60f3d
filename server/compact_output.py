"""What `kompakt compact ...` prints: the broker's JSON, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from cleaner.text import count_text, duration_text, moment_text, size_text
from server.command_output import print_table

Json = Mapping[str, Any]

DROPPED = "dropped_"
AT_LENGTH_MAX = 4
"""Reports of more partitions become a table."""

LEFT_ALIGNED = {"partition", "why", "ended (UTC)", "offsets", "dies", "value", "", "transaction"}


def name_of(part: Json) -> str:
    """The partition as TOPIC-N."""
    return f"{part['topic']}-{part['partition']}"


def print_reports(reports: Sequence[Json]) -> None:
    """What passes did: at length where they are few, else a row each."""
    if len(reports) <= AT_LENGTH_MAX:
        for report in reports:
            print_report(report)
        return
    done = [report for report in reports if not _is_empty(report)]
    if not done:
        typer.echo(f"{count_text(len(reports), 'partition')}: {_idle_text(reports)}")
        return
    print_table(PASS_TITLES, [pass_row(report) for report in done], texts=LEFT_ALIGNED)
    before, after = (sum(each[key] for each in done) for key in ("bytes_before", "bytes_after"))
    idle = [report for report in reports if _is_empty(report)]
    typer.echo(
        f"{count_text(len(done), 'partition')} cleaned, {size_text(before)} -> {size_text(after)}"
        + (f"; {len(idle):,} more, {_idle_text(idle)}" if idle else "")
    )


def print_report(report: Json) -> None:
    """What a pass did."""
    if _is_nothing(report):
        return
    typer.echo(
        f"{name_of(report)}: cleaned [{report['start_offset']}, {report['end_offset']})"
        f" in {duration_text(report['seconds'])},"
        f" {size_text(report['bytes_before'])} -> {size_text(report['bytes_after'])},"
        f" {report['records_before']:,} -> {count_text(report['records_after'], 'record')}"
    )
    for verdict, count in _dropped(report):
        typer.echo(f"  {verdict}: {count_text(count, 'record')} dropped")
    untouched, size = report["segments_untouched"], size_text(report["bytes_untouched"])
    typer.echo(
        f"  {count_text(report['segments_before'], 'segment')} -> {report['segments_after']}"
        + (f", {untouched:,} more ({size}) left as they were" if untouched else "")
        + f"; {count_text(report['sidecars_built'], 'key sidecar')} made"
    )
    throttled = report["throttled_seconds"]
    typer.echo(
        f"  read {size_text(report['bytes_read'])}, wrote {size_text(report['bytes_written'])}"
        + (f", throttled for {duration_text(throttled)}" if throttled else "")
    )


def _is_empty(report: Json) -> bool:
    """Whether nothing was to be cleaned."""
    return bool(report["planned_end_offset"] == report["start_offset"] and not report["groups"])


def _is_nothing(report: Json) -> bool:
    """Whether nothing was to be cleaned, and say so."""
    if not _is_empty(report):
        return False
    name = name_of(report)
    if _is_clean(report):
        typer.echo(f"{name}: already clean")
    else:
        typer.echo(f"{name}: nothing may be cleaned now; kompakt compact explain {name} says why")
    return True


def _is_clean(report: Json) -> bool:
    """Whether a pass has seen all that is in the log."""
    return bool(report["start_offset"] == report.get("log_end_offset"))


def _idle_text(reports: Sequence[Json]) -> str:
    """Why nothing was to be cleaned in any of these."""
    clean = sum(_is_clean(report) for report in reports)
    if clean == len(reports):
        return "already clean"
    waiting = f"in {len(reports) - clean:,} of them " if clean else ""
    return f"{waiting}nothing may be cleaned now; kompakt compact explain says why"


def _dropped(report: Json) -> list[tuple[str, int]]:
    """The records that a pass dropped, by reason."""
    return [
        (verdict.removeprefix(DROPPED), count)
        for verdict, count in report["records_by_verdict"].items()
        if count and verdict.startswith(DROPPED)
    ]


PASS_TITLES = ("partition", "took", "before", "after", "dropped", "why")


def pass_row(report: Json) -> tuple[str, ...]:
    """A completed pass as a row under `PASS_TITLES`."""
    sizes = (report["bytes_before"], report["bytes_after"])
    return (
        name_of(report),
        duration_text(report["seconds"]),
        *(size_text(size) if report["groups"] else "-" for size in sizes),
        f"{sum(count for _, count in _dropped(report)):,}",
        reason_text(report),
    )


def reason_text(report: Json) -> str:
    """Why its log was picked."""
    return str(report["reason"]).lower().replace("_", " ")


def print_plan(plan: Json) -> None:
    """What a pass would do."""
    report = plan["report"]
    if _is_nothing(report):
        return
    freed = report["bytes_before"] - report["bytes_after"]
    typer.echo(
        f"{name_of(report)}: a pass now would clean"
        f" [{report['start_offset']}, {report['planned_end_offset']})"
        + (", after the active segment has rolled" if plan["rolls_active_segment"] else "")
    )
    typer.echo(
        f"  frees {size_text(freed)} of {size_text(report['bytes_before'])},"
        f" {report['records_before'] - report['records_after']:,}"
        f" of {count_text(report['records_before'], 'record')}"
    )
    for reason, count in plan["dies"].items():
        typer.echo(
            f"  {reason}: {count_text(count['records'], 'record')},"
            f" {size_text(count['record_bytes'])} uncompressed"
        )
    for line in _cost(plan):
        typer.echo(f"  {line}")
    if plan["groups"]:
        print_table(
            ("offsets", "segments", "bytes", "left", "dies", "segments after"),
            [row for group in plan["groups"] for row in _group_rows(group)],
            texts=LEFT_ALIGNED,
        )
    if plan["untouched_segments"]:
        size = sum(row["bytes"] for row in plan["untouched_segments"])
        typer.echo(
            f"  {count_text(len(plan['untouched_segments']), 'segment')} ({size_text(size)})"
            " left as they are"
        )


def _cost(plan: Json) -> Iterator[str]:
    """What the pass takes: I/O, time, memory."""
    report = plan["report"]
    throttled = report["throttled_seconds"]
    yield (
        f"reads {size_text(report['bytes_read'])}, writes {size_text(report['bytes_written'])},"
        f" takes about {duration_text(report['seconds'])}"
        + (f", {duration_text(throttled)} of them throttled as now" if throttled else "")
    )
    yield (
        f"{count_text(report['keys_mapped'], 'key')} in {count_text(report['parts'], 'part')}"
        f" of the map, which takes at most {size_text(plan['map_bytes_max'])}"
    )
    if report["sidecars_built"]:
        yield f"{count_text(report['sidecars_built'], 'segment')} without a key sidecar, read for it"


def _group_rows(group: Json) -> Iterator[tuple[str, ...]]:
    """A group, and its segments where it has several."""
    sources = group["sources"]
    yield (
        f"[{sources[0]['base_offset']}, {sources[-1]['end_offset']})",
        str(len(sources)),
        size_text(group["bytes_before"]),
        size_text(group["bytes_after"]),
        _deaths(group),
        str(len(group["outputs"])) if group["is_replaced"] else "unchanged",
    )
    for source in sources if len(sources) > 1 else ():
        offsets = f"  [{source['base_offset']}, {source['end_offset']})"
        yield (offsets, "", size_text(source["bytes"]), "", _deaths(source), "")


def _deaths(part: Json) -> str:
    counts = (f"{count['records']} {reason}" for reason, count in part["dies"].items())
    return ", ".join(counts) or "nothing"


def print_key(name: str, key: Json) -> None:
    """A key's records that are still on disk, and what becomes of them."""
    typer.echo(f"{name}: {count_text(key['records_count'], 'record')} of the key on disk")
    if key["records"]:
        print_table(
            ("offset", "time", "segment", "size", "value", "", "transaction"),
            [_key_row(record) for record in key["records"]],
            texts=LEFT_ALIGNED,
        )
    for sentence in key["fate"]:
        typer.echo(f"  {sentence}")


def _key_row(record: Json) -> tuple[str, ...]:
    by = record["superseded_by"]
    return (
        str(record["offset"]),
        moment_text(record["timestamp_ms"]),
        f"{record['segment_base_offset']}.v{record['segment_file_version']}",
        size_text(record["record_bytes"]),
        "tombstone" if record["is_tombstone"] else size_text(record["value_bytes"]),
        "" if by is None else f"superseded by {by}",
        record["transaction"] or "",
    )


def print_digests(parts: Sequence[Json]) -> None:
    """What partitions say of their keys."""
    if parts:
        print_table(
            ("partition", "from", "to", "keys with a value", "digest"),
            [(name_of(part), *_digest_cells(part["digest"])) for part in parts],
            texts=LEFT_ALIGNED | {"digest"},
        )
    for part in parts:
        digest = part["digest"]
        if digest["clean_offset"] > digest["end_offset"]:
            typer.echo(
                f"{name_of(part)} is cleaned up to offset {digest['clean_offset']}: what later"
                " records supersede is gone below the end, too"
            )


def _digest_cells(digest: Json) -> tuple[str, ...]:
    offsets = str(digest["start_offset"]), str(digest["end_offset"])
    return (*offsets, f"{digest['keys']:,}", digest["digest"])


def print_explanations(answer: Json) -> None:
    """Why partitions are not being compacted, and what changes that."""
    for explanation in answer["partitions"]:
        typer.echo(explanation["text"])
        for number, finding in enumerate(explanation["findings"], 1):
            # What decides first is in the headline already.
            is_told = finding["text"] in explanation["text"]
            text = "" if is_told else f": {finding['text']}"
            typer.echo(f"  {number}. {finding['obstacle'].replace('_', ' ')}{text}")
            typer.echo(f"     -> {finding['remedy']}")


def print_paused(paused: Json) -> None:
    """What is paused."""
    if paused["everything_since_ms"] is not None:
        typer.echo(f"all cleaning is paused since {moment_text(paused['everything_since_ms'])}")
    for each in paused["named"]:
        name = each["topic"] if each["partition"] is None else name_of(each)
        typer.echo(f"{name} is paused since {moment_text(each['since_ms'])}")
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
        print_table(
            ("partition", "why", "dirty ratio", "dirty", "waited"),
            [_queue_row(waiting) for waiting in status["queue"]],
            texts=LEFT_ALIGNED,
        )
    for entry in status["quarantined"]:
        typer.echo(
            f"{name_of(entry)} rests after {count_text(entry['failures'], 'failure')},"
            f" tried again in {duration_text(entry['retry_in_seconds'])}: {entry['reason']}"
        )
    if status["last_passes"]:
        typer.echo("the last pass over each partition since the start:")
        rows = [pass_row(report) for report in status["last_passes"]]
        print_table(PASS_TITLES, rows, texts=LEFT_ALIGNED)
        left_out = status["last_passes_count"] - len(status["last_passes"])
        if left_out:
            typer.echo(f" and {left_out:,} more, which kompakt compact history TOPIC[-N] has")


def _throttle(throttle: Json, threads: int) -> str:
    told = count_text(threads, "thread")
    if throttle["is_lifted_for_disk_pressure"]:
        return f"{told}; a disk is nearly full, so that no budget holds"
    limits = [
        f"{name} {size_text(throttle[key])}/s"
        for name, key in (
            ("I/O", "total_bytes_per_second"),
            ("reads", "read_bytes_per_second"),
            ("writes", "write_bytes_per_second"),
        )
        if throttle[key] is not None
    ]
    guard = throttle["latency_guard"]
    if guard["bytes_per_second"] is not None:
        limits.append(f"latency guard {size_text(guard['bytes_per_second'])}/s")
    told = f"{told}; limits: {', '.join(limits) or 'none'}"
    return told if guard["is_enabled"] else f"{told}; the latency guard is off"


def _running(running: Json) -> str:
    progress = running["progress"]
    if running["task"] == "lease" and not progress["bytes_planned"]:
        return f"{name_of(running)}: another process has it to clean it ({reason_text(running)})"
    part = progress["bytes_done"] / max(progress["bytes_planned"], 1)
    left = progress["eta_seconds"]
    return (
        f"{name_of(running)}: {running['task']} runs ({reason_text(running)}), {part:.0%}"
        f" of {size_text(progress['bytes_planned'])}, {progress['phase']},"
        f" for {duration_text(progress['seconds'])}"
        f" ({duration_text(progress['throttled_seconds'])} throttled)"
        + (f", {duration_text(left)} left" if left is not None else "")
    )


def _queue_row(waiting: Json) -> tuple[str, ...]:
    return (
        name_of(waiting),
        reason_text(waiting),
        f"{waiting['dirty_ratio']:.2f}",
        size_text(waiting["dirty_bytes"]),
        duration_text(waiting["waited_ms"] / 1000),
    )
