"""Carries out `kompakt backup prune`."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from cleaner.rules.text import count_text, moment_text, size_text
from cli.backup.repository import storage_errors, to_write
from cli.base.command_end import EXIT_USAGE, CommandFailed
from cli.base.moments import parse_span
from cli.base.output import print_json
from storage.backup.prune_backups import Keeping, PrunePlan, plan_prune, prune


def prune_repository(
    repository: Path,
    keep: int | None,
    keep_for: str | None,
    *,
    is_rehearsal: bool,
    as_json: bool,
) -> int:
    """Delete old backups, and print what was deleted. Returns the exit code."""
    keeping = Keeping(count=keep, for_ms=_span(keep_for))
    if keeping == Keeping():
        raise CommandFailed(
            EXIT_USAGE, "say which backups stay: --keep N, --keep-for SPAN, or both"
        )
    with storage_errors():
        store = to_write(repository)
        lock = store.lock()
        try:
            plan = plan_prune(store, keeping, now_ms=time.time_ns() // 1_000_000)
            if not is_rehearsal:
                prune(store, plan)
        finally:
            lock.release()
    if as_json:
        print_json(
            {
                "is_dry_run": is_rehearsal,
                "kept": [index.id for index in plan.kept],
                "deleted": [index.id for index in plan.deleted],
                "objects": len(plan.objects),
                "bytes": plan.bytes,
            }
        )
    else:
        _print(plan, "would delete" if is_rehearsal else "deleted")
    return 0


def _span(text: str | None) -> int | None:
    if text is None:
        return None
    span = parse_span(text)
    if span is None:
        raise CommandFailed(EXIT_USAGE, f"--keep-for {text} is not a duration: write 12h or 30d")
    return span


def _print(plan: PrunePlan, done: str) -> None:
    for index in plan.deleted:
        typer.echo(f"{done} {index.id} as of {moment_text(index.snapshot.as_of_ms)}")
    typer.echo(
        f"{done} {count_text(len(plan.deleted), 'backup')} and"
        f" {count_text(len(plan.objects), 'object')}, {size_text(plan.bytes)};"
        f" {count_text(len(plan.kept), 'backup')} left"
    )
