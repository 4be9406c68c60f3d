"""Requests erasures, and waits for their certificates."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import typer

from cleaner.rules.text import count_text, moment_text
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed, complain
from cli.base.moments import SPAN, UNIT_MS
from cli.base.output import print_json
from cli.compact.client import CompactionClient, Json, connected
from cli.erase.show import erasure_path, holder_lines, print_erasures

KEYS_A_REQUEST = 100
REQUEST_SECONDS_MAX = 24 * 3600.0
"""A request is answered once all partitions were searched."""
POLL_SECONDS = 1.0


def parse_span(text: str) -> int:
    """Returns a span such as 72h in ms. Raises CommandFailed."""
    match = SPAN.fullmatch(text)
    span_ms = int(float(match[1]) * UNIT_MS[match[2]]) if match else 0
    if span_ms <= 0:
        raise CommandFailed(EXIT_USAGE, f"--by is a time from now such as 72h or 30d, not {text!r}")
    return span_ms


async def request_erasure(
    url: str,
    topic: str,
    keys: Sequence[bytes],
    *,
    by: str,
    waits: bool,
    certificates: Path | None,
    as_json: bool,
) -> int:
    """Request the erasure of keys and print what was accepted. Returns the exit code.

    Args:
        certificates: the directory that gets the certificates, if the command waits.
    """
    within_ms = parse_span(by)
    async with connected(url, seconds_max=REQUEST_SECONDS_MAX) as client:
        erasures = [
            each
            for some in _chunks(keys)
            for each in await _request(client, topic, some, within_ms)
        ]
        if waits:
            erasures = await _certified(client, erasures)
        if certificates is not None:
            await _write_certificates(client, erasures, certificates)
    if as_json:
        print_json({"erasures": erasures})
    else:
        _print_accepted(topic, erasures)
    is_done = all(each["is_certified"] for each in erasures) or not waits
    return 0 if is_done else EXIT_FAILED


def _chunks(keys: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [keys[at : at + KEYS_A_REQUEST] for at in range(0, len(keys), KEYS_A_REQUEST)]


async def _request(
    client: CompactionClient, topic: str, keys: Sequence[bytes], within_ms: int
) -> list[Json]:
    body = json.dumps({"keys": [key.hex() for key in keys], "within_ms": within_ms})
    answer = await client.call("POST", f"/topics/{quote(topic, safe='')}/erase", body=body)
    accepted: list[Json] = answer["erasures"]
    return accepted


async def _certified(client: CompactionClient, erasures: list[Json]) -> list[Json]:
    """Returns the erasures once all are certified, or ended, or overdue. Says what holds them."""
    shown: set[str] = set()
    try:
        while any(_is_awaited(each) for each in erasures):
            for line in {line for each in erasures for line in holder_lines(each)} - shown:
                shown.add(line)
                complain(f"waits: {line}")
            await asyncio.sleep(POLL_SECONDS)
            erasures = [
                await client.call("GET", erasure_path(each["id"])) if _is_awaited(each) else each
                for each in erasures
            ]
    except asyncio.CancelledError:
        complain("the erasures continue in the broker; `kompakt erase list` shows them")
        raise
    return erasures


async def _write_certificates(
    client: CompactionClient, erasures: Sequence[Json], directory: Path
) -> None:
    """Write the certificates that were issued. Raises CommandFailed."""
    for each in erasures:
        if each["is_certified"]:
            signed = await client.call("GET", erasure_path(each["id"]) + "/certificate")
            _write(directory / f"{each['id']}.json", signed)


def _write(file: Path, signed: Json) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(signed, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise CommandFailed(EXIT_FAILED, f"cannot write {file}: {error}") from error


def _is_awaited(erasure: Json) -> bool:
    is_over = erasure["is_final"] or erasure["is_certified"]
    return not is_over and time.time() * 1000 <= erasure["deadline_ms"]


def _print_accepted(topic: str, erasures: Sequence[Json]) -> None:
    nowhere = [each for each in erasures if not any(p["had_records"] for p in each["partitions"])]
    typer.echo(
        f"{topic}: {count_text(len(erasures), 'key')} to erase by"
        f" {moment_text(erasures[0]['deadline_ms'])}"
        + (f"; no partition has a record of {len(nowhere)} of them" if nowhere else "")
    )
    print_erasures(erasures)
    for each in erasures:
        if each["risk"] != "none":
            complain(
                f"{each['id']}: the deadline is {each['risk']}: kompakt erase status {each['id']}"
            )
