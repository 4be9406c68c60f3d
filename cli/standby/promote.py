"""`kompakt standby promote`: lets a standby take over, and says what it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer

from cleaner.rules.text import count_text
from cli.base.command_end import complain
from cli.base.output import print_json
from cli.compact.client import STANDBY_ROOT, CallFailed, connected

START_SECONDS = 600.0
"""How long the start as a broker may take: large groups are written once more."""

Json = dict[str, Any]


async def promote_standby(url: str, *, is_forced: bool, wait_s: float, as_json: bool) -> int:
    """Promote a standby, and list what it lacks. Returns the exit code.

    Raises:
        CallFailed: it refuses, after what is missing was printed.
    """
    body = json.dumps({"force": is_forced, "wait_seconds": wait_s})
    seconds_max = wait_s + START_SECONDS
    async with connected(url, root=STANDBY_ROOT, seconds_max=seconds_max) as client:
        try:
            report = await client.call("POST", "/promotion", body=body)
        except CallFailed as refused:
            for sentence in refused.answer.get("missing", []):
                complain(sentence)
            raise
    if as_json:
        print_json(report)
    else:
        for line in _lines(report):
            typer.echo(line)
    return 0


def _lines(report: Json) -> Iterator[str]:
    missing = report["missing"]
    yield f"the standby serves clients now, in place of {report['source']}" + (
        "; it lacks:" if missing else ", with all of its records"
    )
    yield from (f"  {sentence}" for sentence in missing)
    if report["aborted"]:
        yield f"aborted {count_text(len(report['aborted']), 'transaction')} that had not ended:"
        yield from (f"  {each}" for each in report["aborted"])
    yield from (f"  {sentence}" for sentence in report["incomplete"])
    if report["lowered"]:
        yield "committed offsets beyond the end, set to the end:"
        yield from (f"  {sentence}" for sentence in report["lowered"])
