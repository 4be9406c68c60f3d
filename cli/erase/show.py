"""Shows erasures and certificates, and verifies certificates."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import typer

from cleaner.rules.text import count_text, moment_text, size_text
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed, complain, confirm
from cli.base.output import print_json, print_table
from cli.compact.client import Json, connected
from server.erasure.certificate import BadCertificate, checked

VERIFY_SECONDS_MAX = 24 * 3600.0
"""The broker reads the whole topic."""

TITLES = ("ID", "TOPIC", "STATE", "RISK", "REQUESTED", "DEADLINE", "EXPECTED")
LEFT_ALIGNED = frozenset(TITLES)


def erasure_path(erasure_id: str) -> str:
    """Returns the path of an erasure below the client's root."""
    return f"/erasures/{quote(erasure_id, safe='')}"


async def list_all(url: str, topic: str | None, *, as_json: bool) -> int:
    """Print the erasures of a topic, or all. Returns the exit code."""
    query = {} if topic is None else {"topic": topic}
    async with connected(url) as client:
        answer = await client.call("GET", "/erasures", query)
    if as_json:
        print_json(answer)
    elif answer["erasures"]:
        print_erasures(answer["erasures"])
    else:
        typer.echo("there are no erasures")
    return 0


async def show_status(url: str, erasure_id: str, *, as_json: bool) -> int:
    """Print one erasure. Returns 1 if its deadline is at risk or has passed."""
    async with connected(url) as client:
        erasure = await client.call("GET", erasure_path(erasure_id))
    if as_json:
        print_json(erasure)
    else:
        _print_one(erasure)
    return 0 if erasure["risk"] == "none" else EXIT_FAILED


async def forget_erasure(url: str, erasure_id: str, *, is_confirmed: bool) -> int:
    """Forget an erasure, once that is confirmed. Returns the exit code."""
    async with connected(url) as client:
        erasure = await client.call("GET", erasure_path(erasure_id))
        if not is_confirmed:
            confirm(
                f"Erasure {erasure_id} of a key of {erasure['topic']} is {erasure['state']}. Forget it?"
            )
        await client.call("DELETE", erasure_path(erasure_id))
    typer.echo(f"{erasure_id} is forgotten; its tombstones stay in {erasure['topic']}")
    return 0


async def print_certificate(url: str, erasure_id: str) -> int:
    """Print the newest certificate of an erasure."""
    async with connected(url) as client:
        print_json(await client.call("GET", erasure_path(erasure_id) + "/certificate"))
    return 0


async def verify_certificate(url: str, file: Path, key: bytes | None, *, as_json: bool) -> int:
    """Check a certificate here and at the broker, and print the verdict. Returns 1 if it fails."""
    signed = _read(file)
    try:
        said = checked(signed)
    except BadCertificate as error:
        raise CommandFailed(EXIT_FAILED, f"{file}: {error}") from error
    body = json.dumps({"certificate": signed, "key": None if key is None else key.hex()})
    path = f"/topics/{quote(said['topic'], safe='')}/verify-erasure"
    async with connected(url, seconds_max=VERIFY_SECONDS_MAX) as client:
        verdict = await client.call("POST", path, body=body)
    if as_json:
        print_json(verdict)
    else:
        _print_verdict(said, verdict, has_key=key is not None)
    return 0 if verdict["holds"] else EXIT_FAILED


def _read(file: Path) -> object:
    try:
        return json.loads(sys.stdin.read() if str(file) == "-" else file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CommandFailed(EXIT_USAGE, f"{file} is not a certificate: {error}") from error


def print_erasures(erasures: Sequence[Json]) -> None:
    """Print a row for each erasure, then what holds those that are at risk."""
    print_table(TITLES, [_row(each) for each in erasures], texts=LEFT_ALIGNED)


def _row(erasure: Json) -> tuple[str, ...]:
    expected = erasure["ended_ms"] if erasure["is_final"] else erasure["expected_ms"]
    return (
        erasure["id"],
        erasure["topic"],
        erasure["state"],
        erasure["risk"],
        moment_text(erasure["requested_ms"]),
        moment_text(erasure["deadline_ms"]),
        "-" if expected is None else moment_text(expected),
    )


STATES = {
    "cleaning": "records of the key are being removed",
    "held": "no record is in the log, but files are left that had some",
    "erased": "no record is left, and that is certified; the tombstones wait",
    "complete": "nothing is left, and that is certified",
    "ended": "the topic was deleted",
}


def _print_one(erasure: Json) -> None:
    what = STATES.get(erasure["state"], "")
    typer.echo(f"{erasure['id']}  topic {erasure['topic']}  {erasure['state']}: {what}")
    deadline = moment_text(erasure["deadline_ms"])
    typer.echo(f"deadline {deadline}, risk: {erasure['risk']}")
    if erasure["is_final"]:
        typer.echo(f"ended {moment_text(erasure['ended_ms'])}")
    elif erasure["expected_ms"] is not None:
        typer.echo(f"expected {moment_text(erasure['expected_ms'])}")
    had = [each["partition"] for each in erasure["partitions"] if each["had_records"]]
    typer.echo(
        f"records of the key were in {len(had)} of"
        f" {count_text(len(erasure['partitions']), 'partition')}"
        + (f": {', '.join(map(str, had))}" if had else "")
    )
    for line in holder_lines(erasure):
        typer.echo(f"waits: {line}")


def holder_lines(erasure: Json) -> Iterator[str]:
    """Yields what holds an erasure, and what changes it."""
    for holder in erasure["holders"]:
        yield f"{holder['text']} -> {holder['remedy']}"


def _print_verdict(said: Json, verdict: Json, *, has_key: bool) -> None:
    if verdict["holds"]:
        records = sum(each["records_read"] for each in verdict["partitions"])
        size = sum(each["bytes_read"] for each in verdict["partitions"])
        typer.echo(
            f"certificate {said['id']} ({said['state']}) holds: {count_text(records, 'record')}"
            f" ({size_text(size)}) in {count_text(len(said['partitions']), 'partition')} of"
            f" {said['topic']} were read, and none has the key"
        )
        if not has_key:
            typer.echo("with --key the command also checks that it is about that key")
    for note in verdict["notes"]:
        typer.echo(note)
    for problem in verdict["problems"]:
        complain(f"certificate {said['id']} does not hold: {problem}")
