"""Carries out `kompakt compact ledger`: reads ledgers here, or asks a broker, and prints the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from cleaner.inspect.ledger_passes import PASSES_MAX, LedgerPass, covering, passes_of, wanted_bytes
from cleaner.rules.text import duration_text
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed, complain
from cli.base.output import byte_bar, print_json, progress_bars
from cli.compact.client import POLL_SECONDS, TARGET, CompactionClient, connected
from cli.compact.ledger_output import print_heads, print_passes, print_reports
from server.ledger.ledger_json import ledger_report_json, pass_json
from storage.files.errors import DamagedFile, StorageError
from storage.files.local_files import ReadOnlyFileSystem
from storage.files.paths import META_PROPERTIES
from storage.ledger.ledger_files import read_entries
from storage.ledger.ledger_head import SignedHead, heads_from_json, signed_head
from storage.verify.ledger import (
    LedgerReport,
    LedgerVerification,
    anchors_by_path,
    cleaned_segments,
)
from storage.verify.verify import find_logs

Json = dict[str, Any]
ROOT = "/ledger"


# ---------------------------------------------------------------- passes


async def show_passes(
    url: str,
    data_dirs: Sequence[Path] | None,
    target: str | None,
    *,
    limit: int,
    offset: int | None = None,
    as_json: bool,
) -> int:
    """Print the passes over TOPIC, TOPIC-N or everything; with an offset, those that covered it."""
    query = {"limit": str(limit), **({} if offset is None else {"offset": str(offset)})}
    if data_dirs:
        paths = _directories(data_dirs)
        passes = _first_found(target, lambda asked: _passes_here(paths, asked, limit, offset))
    else:
        async with connected(url) as client:
            passes = await _ask(client, target, query)
    if as_json:
        print_json({"passes": passes})
    else:
        print_passes(passes, target, offset)
    return 0


async def _ask(client: CompactionClient, target: str | None, query: dict[str, str]) -> list[Json]:
    for asked in _readings(target):
        answer = await client.call("GET", ROOT, query | asked)
        if answer["passes"]:
            return list(answer["passes"])
    return []


def _readings(target: str | None) -> list[dict[str, str]]:
    """Returns what a target may mean: a topic of that name first, then a partition of one.

    The topic may be deleted, so only the ledger can tell which of the two is meant.
    """
    if target is None:
        return [{}]
    match = TARGET.fullmatch(target)
    return [{"topic": target}, *([] if match is None else [match.groupdict()])]


def _first_found(target: str | None, find: Callable[[dict[str, str]], list[Json]]) -> list[Json]:
    return next((found for asked in _readings(target) if (found := find(asked))), [])


def _passes_here(
    paths: Sequence[str], asked: dict[str, str], limit: int, offset: int | None
) -> list[Json]:
    topic, partition = asked.get("topic"), asked.get("partition")
    found: list[LedgerPass] = []
    for path in paths:
        with _disk_errors():
            found += passes_of(
                read_entries(ReadOnlyFileSystem(), path, wanted=wanted_bytes(topic, None)),
                topic=topic,
                partition=None if partition is None else int(partition),
                limit=limit if offset is None else PASSES_MAX,
            )
    found.sort(key=lambda each: each.at_ms)
    if offset is None:
        return [pass_json(each) for each in found[-limit:]]
    return [pass_json(each, [group]) for each, group in covering(found, offset)[-limit:]]


# ---------------------------------------------------------------- heads


async def show_heads(url: str, data_dirs: Sequence[Path] | None, *, as_json: bool) -> int:
    """Print the signed heads."""
    if data_dirs:
        with _disk_errors():
            found = [signed_head(ReadOnlyFileSystem(), path) for path in _directories(data_dirs)]
        answer: Json = {"heads": [each.as_json() for each in found if each is not None]}
    else:
        async with connected(url) as client:
            answer = await client.call("GET", ROOT + "/head")
    (print_json if as_json else print_heads)(answer)
    return 0


# ---------------------------------------------------------------- verification


def verify_here(data_dirs: Sequence[Path], anchor: Path | None, *, as_json: bool) -> int:
    """Verify the ledgers of data directories, and return the exit code."""
    files, paths = ReadOnlyFileSystem(), _directories(data_dirs)
    reports: list[LedgerReport] = []
    with _disk_errors():
        anchors = _matched(paths, [] if anchor is None else heads_from_json(_text_of(anchor)))
        for path in paths:
            found = find_logs(files, path)
            on_disk = cleaned_segments(files, () if found is None else found.logs)
            with byte_bar("verify", sum(each.row.size for each in on_disk.values())) as progress:
                verification = LedgerVerification(
                    files, path, on_disk, anchors=anchors[path], progress=progress
                )
                reports.append(verification.run())
    return _conclude([ledger_report_json(each) for each in reports], as_json=as_json)


def _matched(paths: Sequence[str], anchors: Sequence[SignedHead]) -> dict[str, list[SignedHead]]:
    return anchors_by_path(ReadOnlyFileSystem(), paths, anchors)


async def verify_there(url: str, anchor: Path | None, *, as_json: bool) -> int:
    """Let a broker verify its ledgers, follow it, and return the exit code."""
    body = None if anchor is None else _text_of(anchor)
    async with connected(url) as client:
        job = await client.call("POST", ROOT + "/verify", body=body)
        try:
            job = await _follow(client, job, is_shown=not as_json)
        except asyncio.CancelledError:
            await client.call("DELETE", f"{ROOT}/verify/{job['id']}")
            raise
    if job["error"] is not None:
        complain(f"{job['state']}: {job['error']}")
        return EXIT_FAILED
    return _conclude(job["ledgers"], as_json=as_json)


async def _follow(client: CompactionClient, job: Json, *, is_shown: bool) -> Json:
    with progress_bars(
        BarColumn(), DownloadColumn(), TextColumn("{task.fields[state]}"), is_shown=is_shown
    ) as bars:
        task = bars.add_task("verify", total=None, state=job["state"])
        while not job["is_over"]:
            await asyncio.sleep(POLL_SECONDS)
            job = await client.call("GET", f"{ROOT}/verify/{job['id']}")
            _update(bars, task, job)
    return job


def _update(bars: Progress, task: TaskID, job: Json) -> None:
    progress = job["progress"]
    left = progress["eta_seconds"]
    state = job["state"] + ("" if left is None else f", about {duration_text(left)} left")
    total = progress["bytes_planned"] or None
    bars.update(task, completed=progress["bytes_done"], total=total, state=state)


def _conclude(reports: Sequence[Json], *, as_json: bool) -> int:
    is_sound = all(each["is_sound"] for each in reports)
    if as_json:
        print_json({"is_sound": is_sound, "ledgers": list(reports)})
    else:
        print_reports(reports)
    return 0 if is_sound else EXIT_FAILED


# ---------------------------------------------------------------- arguments


def _directories(given: Sequence[Path]) -> list[str]:
    """Returns the paths of data directories. Raises CommandFailed: one is none."""
    for path in given:
        if not (path / META_PROPERTIES).exists():
            raise CommandFailed(
                EXIT_USAGE, f"{path} is not a data directory: it has no {META_PROPERTIES}"
            )
    return [str(path.resolve()) for path in given]


def _text_of(anchor: Path) -> str:
    try:
        return anchor.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(EXIT_USAGE, f"{anchor} cannot be read: {error}") from error


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except (StorageError, DamagedFile) as error:
        raise CommandFailed(EXIT_FAILED, str(error)) from error
    except ValueError as error:
        raise CommandFailed(EXIT_USAGE, f"--anchor: {error}") from error
