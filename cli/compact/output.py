"""Prints the broker's JSON as text for people, for `kompakt compact ...`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from cleaner.rules.text import count_text, duration_text, moment_text, size_text
from cli.base.output import print_table
from cli.compact.reclaimable import reclaimable_cell, reclaimable_text, total_text
from storage.formats.compaction_config import MIN_SEGMENT_DEAD_RATIO
from storage.formats.compaction_history import LAST_VALUE

Json = Mapping[str, Any]

DROPPED = "dropped_"
DETAILED_REPORTS_MAX = 4
"""Reports of more partitions are printed as a table."""

STALLED_SECONDS = 10.0
"""A pass without progress for longer is shown as such."""

LEFT_ALIGNED = {"partition", "why", "ended (UTC)", "offsets", "drops", "value", "", "transaction"}


def name_of(part: Json) -> str:
    """Returns the partition as TOPIC-N."""
    return f"{part['topic']}-{part['partition']}"


def print_reports(reports: Sequence[Json]) -> None:
    """Print what passes did: in detail if they are few, else one row for each."""
    if len(reports) <= DETAILED_REPORTS_MAX:
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
    """Print what a pass did."""
    if _print_if_empty(report):
        return
    typer.echo(
        f"{name_of(report)}: cleaned [{report['start_offset']}, {_reached(report)})"
        f" in {duration_text(report['seconds'])},"
        f" {size_text(report['bytes_before'])} -> {size_text(report['bytes_after'])},"
        f" {report['records_before']:,} -> {count_text(report['records_after'], 'record')}"
    )
    for verdict, count in _dropped(report):
        typer.echo(f"  {verdict}: {count_text(count, 'record')} dropped")
    for line in (
        *_outranked(report),
        *_history(report),
        *_spared(report),
        *_unkeyed(report),
        *fence_lines(report),
    ):
        typer.echo(f"  {line}")
    untouched, size = report["segments_untouched"], size_text(report["bytes_untouched"])
    typer.echo(
        f"  {count_text(report['segments_before'], 'segment')} -> {report['segments_after']}"
        + (f", {untouched:,} more ({size}) left as they were" if untouched else "")
        + f"; {count_text(report['sidecars_built'], 'key sidecar')} made"
    )
    # Reports of earlier releases in the history do not have it.
    if unread := report.get("batches_unread", 0):
        typer.echo(f"  {count_text(unread, 'batch', 'batches')} copied without being inflated")
    if compared := report.get("keys_compared", 0):
        typer.echo(f"  {count_text(compared, 'key')} compared byte by byte")
    throttled = report["throttled_seconds"]
    typer.echo(
        f"  read {size_text(report['bytes_read'])}, wrote {size_text(report['bytes_written'])}"
        + (f", throttled for {duration_text(throttled)}" if throttled else "")
    )


def _reached(report: Json) -> int:
    """Returns where the pass ended; releases before fences only had the clean offset."""
    return int(report.get("reached_offset", report["end_offset"]))


def fence_lines(report: Json) -> Iterator[str]:
    """Yield a line for each damaged segment that stays as it is."""
    for fence in report.get("fences", ()):
        yield (
            f"the damaged segment with offsets [{fence['base_offset']}, {fence['end_offset']})"
            f" ({size_text(fence['bytes'])}) stays as it is: {fence['reason']}"
        )


def _outranked(report: Json) -> Iterator[str]:
    """Yield a line about records that lost against earlier ones, if there are some."""
    count = report.get("outranked", 0)
    if count:
        examples = report["outranked_examples"]
        some = ", ".join(f"{each['offset']} by {each['outranked_by']}" for each in examples)
        more = ", ..." if count > len(examples) else ""
        yield (
            f"{count_text(count, 'record')} outranked by an earlier one, ranked by {report['strategy']}:"
            f" offset {some}{more}"
        )


def _history(report: Json) -> Iterator[str]:
    """Yield a line about the values that stay of a key, if these are more than the last one."""
    history = report.get("history", str(LAST_VALUE))
    if history != str(LAST_VALUE):
        due_ms = report["history_due_ms"]
        yield (
            f"keeps of each key: {history}"
            + (f"; the next older value may go at {moment_text(due_ms)}" if due_ms else "")
        )
    if report.get("sweeps"):
        yield "judged the older values of all keys, not only of those with new records"


def _unkeyed(report: Json) -> Iterator[str]:
    """Yield lines about records without a key that are moved, or stay because they cannot be."""
    if count := report.get("unkeyed_moved"):
        yield f"{count_text(count, 'record')} without a key moved to {report['unkeyed_topic']}"
    if why := report.get("unkeyed_kept_because"):
        yield f"records without a key stay: {why}"


def _spared(report: Json) -> Iterator[str]:
    """Yield a line about superseded records that were left, if there are some."""
    count = report.get("records_spared", 0)
    if count:
        due_ms = report["spared_due_ms"]
        yield (
            f"{count_text(count, 'superseded record')} left in"
            f" {count_text(report['segments_spared'], 'segment')} ({MIN_SEGMENT_DEAD_RATIO})"
            + (f", until {moment_text(due_ms)} at the latest" if due_ms else "")
        )


def _is_empty(report: Json) -> bool:
    """Returns whether there was nothing to clean, and nothing to say."""
    has_nothing_dirty = report["planned_end_offset"] == report["start_offset"]
    return has_nothing_dirty and not report["groups"] and not report.get("fences")


def _print_if_empty(report: Json) -> bool:
    """If there was nothing to clean, print that. Returns whether it was so."""
    if not _is_empty(report):
        return False
    name = name_of(report)
    if _is_clean(report):
        typer.echo(f"{name}: already clean")
    else:
        typer.echo(f"{name}: nothing can be cleaned now; kompakt compact explain {name} says why")
    return True


def _is_clean(report: Json) -> bool:
    """Returns whether the log is clean up to its end."""
    return bool(report["start_offset"] == report.get("log_end_offset"))


def _idle_text(reports: Sequence[Json]) -> str:
    """Returns why there was nothing to clean in any of these partitions."""
    clean = sum(_is_clean(report) for report in reports)
    if clean == len(reports):
        return "already clean"
    waiting = f"in {len(reports) - clean:,} of them " if clean else ""
    return f"{waiting}nothing can be cleaned now; kompakt compact explain says why"


def _dropped(report: Json) -> list[tuple[str, int]]:
    """Returns the number of records that a pass dropped for each reason."""
    return [
        (verdict.removeprefix(DROPPED), count)
        for verdict, count in report["records_by_verdict"].items()
        if count and verdict.startswith(DROPPED)
    ]


PASS_TITLES = ("partition", "took", "before", "after", "dropped", "why")


def pass_row(report: Json) -> tuple[str, ...]:
    """Returns the row of a completed pass, with the columns of `PASS_TITLES`."""
    sizes = (report["bytes_before"], report["bytes_after"])
    return (
        name_of(report),
        duration_text(report["seconds"]),
        *(size_text(size) if report["groups"] else "-" for size in sizes),
        f"{sum(count for _, count in _dropped(report)):,}",
        reason_text(report),
    )


def reason_text(report: Json) -> str:
    """Returns why the cleaner picked the log."""
    return str(report["reason"]).lower().replace("_", " ")


def print_plan(plan: Json) -> None:
    """Print what a pass would do."""
    report = plan["report"]
    if _print_if_empty(report):
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
    for line in (
        *_outranked(report),
        *_history(report),
        *_spared(report),
        *_unkeyed(report),
        *fence_lines(report),
        *_cost(plan),
    ):
        typer.echo(f"  {line}")
    if plan["groups"]:
        print_table(
            ("offsets", "segments", "before", "after", "drops", "segments after"),
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
    """Yield lines about what the pass costs: I/O, time, memory."""
    report = plan["report"]
    throttled = report["throttled_seconds"]
    yield (
        f"reads {size_text(report['bytes_read'])}, writes {size_text(report['bytes_written'])},"
        f" takes about {duration_text(report['seconds'])}"
        + (
            f", {duration_text(throttled)} of it throttled at the current limits"
            if throttled
            else ""
        )
    )
    yield (
        f"{count_text(report['keys_mapped'], 'key')} in {count_text(report['parts'], 'part')}"
        f" of the map, which uses at most {size_text(plan['map_bytes_max'])}"
    )
    if report["sidecars_built"]:
        yield (
            f"{count_text(report['sidecars_built'], 'segment')} without a key sidecar, read to"
            " build it"
        )


def _group_rows(group: Json) -> Iterator[tuple[str, ...]]:
    """Yield the row of a group, then those of its segments if there are several."""
    sources = group["sources"]
    yield (
        f"[{sources[0]['base_offset']}, {sources[-1]['end_offset']})",
        str(len(sources)),
        size_text(group["bytes_before"]),
        size_text(group["bytes_after"]),
        _drops_text(group),
        str(len(group["outputs"])) if group["is_replaced"] else "unchanged",
    )
    for source in sources if len(sources) > 1 else ():
        offsets = f"  [{source['base_offset']}, {source['end_offset']})"
        yield (offsets, "", size_text(source["bytes"]), "", _drops_text(source), "")


def _drops_text(part: Json) -> str:
    counts = (f"{count['records']} {reason}" for reason, count in part["dies"].items())
    return ", ".join(counts) or "nothing"


def print_key(name: str, key: Json) -> None:
    """Print a key's records that are on disk, and what will happen to them."""
    typer.echo(f"{name}: {count_text(key['records_count'], 'record')} of the key on disk")
    if key["records"]:
        print_table(
            ("offset", "time", "segment", "size", "value", "", "transaction"),
            [_key_row(record) for record in key["records"]],
            texts=LEFT_ALIGNED,
        )
    for sentence in (*key["fate"], *key.get("departures", ())):
        typer.echo(f"  {sentence}")


def _key_row(record: Json) -> tuple[str, ...]:
    return (
        str(record["offset"]),
        moment_text(record["timestamp_ms"]),
        f"{record['segment_base_offset']}.v{record['segment_file_version']}",
        size_text(record["record_bytes"]),
        "tombstone" if record["is_tombstone"] else size_text(record["value_bytes"]),
        _standing(record),
        record["transaction"] or "",
    )


def _standing(record: Json) -> str:
    """Returns how a record stands beside the key's current one."""
    if record.get("is_older_value"):
        return "older value, stays"
    by = record["superseded_by"]
    return "" if by is None else f"superseded by {by}"


def print_digests(parts: Sequence[Json]) -> None:
    """Print the digests of partitions."""
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
                f"{name_of(part)} is cleaned up to offset {digest['clean_offset']}: records below"
                " the end that later ones supersede are already removed"
            )


def _digest_cells(digest: Json) -> tuple[str, ...]:
    offsets = str(digest["start_offset"]), str(digest["end_offset"])
    return (*offsets, f"{digest['keys']:,}", digest["digest"])


def print_explanations(answer: Json) -> None:
    """Print why partitions are not being compacted, and what would change that."""
    for explanation in answer["partitions"]:
        typer.echo(explanation["text"])
        for number, finding in enumerate(explanation["findings"], 1):
            # The headline already contains the text of the deciding finding.
            is_in_headline = finding["text"] in explanation["text"]
            text = "" if is_in_headline else f": {finding['text']}"
            typer.echo(f"  {number}. {finding['obstacle'].replace('_', ' ')}{text}")
            typer.echo(f"     -> {finding['remedy']}")
        if explanation.get("expiry") is not None:
            typer.echo(f"  values expire: {expiry_text(explanation['expiry'])}")
        if explanation.get("reclaimable") is not None:
            typer.echo(f"  {reclaimable_text(explanation['reclaimable'])}")


def swept_text(sweep: Json) -> str:
    """Returns what a sweep for expired values has done."""
    text = (
        f"read {count_text(sweep['expired'], 'expired value')}"
        f" and appended {count_text(sweep['tombstones'], 'tombstone')}"
    )
    if sweep["deferred"]:
        text += f"; it left {sweep['deferred']:,} to the next one"
    if sweep["unreadable"]:
        unreadable = count_text(sweep["unreadable"], "value")
        text += f"; {unreadable} had no readable number in compaction.ttl.header"
    return text


def expiry_text(expiry: Json) -> str:
    """Returns when the next value of a partition expires, and what its last sweep has done."""
    last = expiry["last"]
    if last is None:
        return "it has not been swept since the start; the first sweep reads the whole log"
    texts = [
        f"{count_text(expiry['tombstones'], 'tombstone')} in {count_text(expiry['sweeps'], 'sweep')}"
        " since the start",
        f"the last sweep {swept_text(last)}",
    ]
    if last["next_expiry_ms"] is not None:
        texts.append(
            f"the next value that it has read expires at {moment_text(last['next_expiry_ms'])}"
        )
    if expiry["due_ms"] == 0:
        texts.append("the next sweep has to read what came since")
    return "; ".join(texts)


def print_cancelled(answer: Json) -> None:
    """Print what was stopped."""
    for each in answer["cancelled"]:
        what = f"{each['task'].replace('-', ' ')} ({reason_text(each)})"
        state = "" if each["was_running"] else ", which had not begun"
        typer.echo(f"{name_of(each)}: stopped {what}{state}")
    if not answer["cancelled"]:
        typer.echo("nothing was running")


def print_paused(paused: Json) -> None:
    """Print what is paused."""
    if paused["everything_since_ms"] is not None:
        typer.echo(f"all cleaning is paused since {moment_text(paused['everything_since_ms'])}")
    for each in paused["named"]:
        name = each["topic"] if each["partition"] is None else name_of(each)
        typer.echo(f"{name} is paused since {moment_text(each['since_ms'])}")
    if paused["everything_since_ms"] is None and not paused["named"]:
        typer.echo("nothing is paused")


def print_status(status: Json) -> None:
    """Print the current state of the cleaner."""
    typer.echo(_throttle(status["throttle"], status["threads"]))
    print_paused(status["paused"])
    if status.get("kept_bytes"):
        typer.echo(
            f"{size_text(status['kept_bytes'])} of replaced segments are kept:"
            " kompakt compact undo TOPIC[-N] lists the passes that can be undone"
        )
    for running in status["running"]:
        typer.echo(_running(running))
    if not status["running"]:
        typer.echo("nothing is running")
    if status["queue"]:
        typer.echo(f"waiting for a worker: {status['queue_length']}")
        print_table(
            ("partition", "why", "dirty ratio", "dirty", "frees", "waited"),
            [_queue_row(waiting) for waiting in status["queue"]],
            texts=LEFT_ALIGNED,
        )
    known = status.get("reclaimable")
    if known and known["partitions_count"]:
        typer.echo(total_text(known))
    owed = status.get("tombstones")
    if owed and owed["tombstones"]:
        typer.echo(debt_text(owed))
    for entry in status["quarantined"]:
        typer.echo(
            f"{name_of(entry)} is quarantined after {count_text(entry['failures'], 'failure')},"
            f" next try in {duration_text(entry['retry_in_seconds'])}: {entry['reason']}"
        )
    for entry in status.get("expiries", ()):
        typer.echo(f"{name_of(entry)}: values expire: {expiry_text(entry)}")
    for fence in status.get("fenced", ()):
        typer.echo(
            f"{name_of(fence)} has a damaged segment with offsets"
            f" [{fence['base_offset']}, {fence['end_offset']}), known since"
            f" {moment_text(fence['since_ms'])}, which stays as it is: {fence['reason']}"
        )
    if status["last_passes"]:
        typer.echo("the last pass over each partition since the start:")
        rows = [pass_row(report) for report in status["last_passes"]]
        print_table(PASS_TITLES, rows, texts=LEFT_ALIGNED)
        left_out = status["last_passes_count"] - len(status["last_passes"])
        if left_out:
            typer.echo(f" and {left_out:,} more: see kompakt compact history TOPIC[-N]")


def debt_text(debt: Json) -> str:
    """Returns how many tombstones still have to go, and when they fall due."""
    if not debt["tombstones"]:
        return "tombstones: none in what passes have cleaned"
    size, first, last = debt["tombstone_bytes"], debt["first_due_ms"], debt["all_due_ms"]
    text = f"tombstones: {debt['tombstones']:,}"
    if size is not None:
        text += f" ({size_text(size)} uncompressed)"
    if first is not None:
        text += f"; the first falls due {moment_text(first)}"
    return text + (f", all by {moment_text(last)}" if last is not None else "")


def _throttle(throttle: Json, threads: int) -> str:
    text = count_text(threads, "thread")
    if throttle["is_lifted_for_disk_pressure"]:
        return f"{text}; a disk is nearly full, so no limit applies"
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
    text = f"{text}; limits: {', '.join(limits) or 'none'}"
    return text if guard["is_enabled"] else f"{text}; the latency guard is off"


def _running(running: Json) -> str:
    progress = running["progress"]
    if running["task"] == "lease" and not progress["bytes_planned"]:
        return (
            f"{name_of(running)}: leased to another process for cleaning ({reason_text(running)})"
        )
    part = progress["bytes_done"] / max(progress["bytes_planned"], 1)
    left, stalled = progress["eta_seconds"], progress.get("stalled_seconds", 0.0)
    return (
        f"{name_of(running)}: running {running['task']} ({reason_text(running)}), {part:.0%}"
        f" of {size_text(progress['bytes_planned'])}, {progress['phase']},"
        f" for {duration_text(progress['seconds'])}"
        f" ({duration_text(progress['throttled_seconds'])} throttled)"
        + (f", {duration_text(left)} left" if left is not None else "")
        + (f"; no progress for {duration_text(stalled)}" if stalled > STALLED_SECONDS else "")
    )


def _queue_row(waiting: Json) -> tuple[str, ...]:
    return (
        name_of(waiting),
        reason_text(waiting),
        f"{waiting['dirty_ratio']:.2f}",
        size_text(waiting["dirty_bytes"]),
        reclaimable_cell(waiting.get("reclaimable")),
        duration_text(waiting["waited_ms"] / 1000),
    )
