"""`kompakt standby status`: how far a standby is, or all standbys of a leader, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from cleaner.rules.text import count_text, duration_text, size_text
from cli.base.command_end import EXIT_FAILED
from cli.base.output import print_json, print_table
from cli.compact.client import STANDBY_ROOT, connected
from cli.standby.progress import State
from server.metadata.followers import AWAY_SECONDS, LAG_ENTRIES_MAX, LAG_OFFSETS_MAX

Json = dict[str, Any]

UNMIRRORED_LISTED_MAX = 3
SAYS_WHY = "kompakt standby status there says why"
TITLES = (
    "STANDBY", "HOST", "END", "LAG", "COORDINATORS' LAG", "LAST SEEN", "INSTALLS", "DOWNLOAD",
)  # fmt: skip


async def show_standby(url: str, *, as_json: bool, verifies: bool = False) -> int:
    """Print a standby's state. Returns 1 unless it has all that the leader had a moment ago.

    Args:
        verifies: compare the coordinators' copies with the leader's too. Returns 1 if one differs or
            could not be compared.
    """
    async with connected(url, root=STANDBY_ROOT) as client:
        found = await client.call("GET", "")
        if verifies:
            found |= {"verification": await client.call("POST", "/verification")}
    if as_json:
        print_json(found)
    else:
        for line in _lines(found):
            typer.echo(line)
    is_equal = all(each["is_equal"] for each in _verified(found))
    return 0 if found["not_ready"] is None and is_equal else EXIT_FAILED


def _verified(found: Json) -> list[Json]:
    """Returns the partitions that were compared."""
    partitions: list[Json] = found.get("verification", {}).get("partitions", [])
    return partitions


def _coordinator_lines(found: Json) -> Iterator[str]:
    """Yields how far the copies of the coordinators' topics are."""
    for each in found["coordinators"]:
        yield (
            f"{each['name']}: {count_text(each['partitions'], 'partition')}, lag"
            f" {count_text(each['lag'], 'offset')}, {count_text(each['installs'], 'checkpoint')} of"
            f" the leader, {size_text(each['disk_bytes'])}"
        )
        yield from (f"    waiting: {reason}" for reason in each["waiting"])
    if found["coordinators_reason"]:
        yield f"coordinators' topics: {found['coordinators_reason']}"
    if "verification" in found:
        yield from _verification_lines(_verified(found))


def _mirrors_line(mirrors: Json) -> str:
    """Returns how far the mirrors of all other topics are."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(mirrors["by_state"].items()))
    unmirrored = mirrors.get("unmirrored", [])
    reasons = [mirrors["reason"], *unmirrored[:UNMIRRORED_LISTED_MAX]]
    if len(unmirrored) > UNMIRRORED_LISTED_MAX:
        reasons.append(f"{len(unmirrored) - UNMIRRORED_LISTED_MAX} more")
    reason = "".join(f"; {each}" for each in reasons if each)
    copied = mirrors["by_state"].get("copying", 0)
    others = mirrors["partitions"] - copied
    lag = [count_text(mirrors["lag"], "offset")] if copied or not others else []
    lag += [f"unknown for {count_text(others, 'partition')}"] if others else []
    return (
        f"topics      {count_text(mirrors['partitions'], 'partition')}"
        + (f": {states}" if states else "")
        + f", lag {' and '.join(lag)}{reason}"
    )


def _verification_lines(partitions: list[Json]) -> Iterator[str]:
    for each in partitions:
        if each["is_equal"] is None:
            yield f"    {each['partition']}: not compared, {each['reason']}"
        elif not each["is_equal"]:
            yield (
                f"    {each['partition']}: DIFFERS at offset {each['end']}, digest {each['digest']}, the"
                f" leader's {each['leader_digest']}: stop the standby, remove its directory of this"
                " partition, and start it again"
            )
    equal = sum(bool(each["is_equal"]) for each in partitions)
    count = count_text(len(partitions), "partition")
    yield f"verified    equal digests: {equal} of {count} that have records"


async def show_leader(url: str, *, as_json: bool) -> int:
    """Print the standbys of a leader. Returns 1 if one of them is away or far behind."""
    async with connected(url, root="/v1/metadata") as client:
        found = await client.call("GET", "/followers")
    problems = list(_problems(found))
    if as_json:
        print_json(found)
    else:
        _print_leader(found)
        for line in problems:
            typer.echo(line)
    return EXIT_FAILED if problems else 0


def _lines(found: Json) -> Iterator[str]:
    """Yields what a person wants to know about a standby."""
    yield f"state       {found['state']}" + (f": {found['reason']}" if found["reason"] else "")
    if found["state"] == State.PROMOTED:
        # All else is as it was when it last followed.
        yield f"to do       {_advice(found['state'])}"
        return
    yield f"leader      {found['leader']}, cluster {found['cluster_id'] or 'not known yet'}"
    yield f"directory   {found['directory']}, which leaders name {found['follower_id']}"
    yield f"end         {found['end']}, term {found['term']}"
    yield f"digest      {found['digest']}"
    if found["lag"] is not None:
        seen = duration_text(found["seen_seconds_ago"])
        yield f"lag         {count_text(found['lag'], 'entry', 'entries')}, as of {seen} ago"
    yield f"installs    {count_text(found['installs'], 'snapshot')} of the leader since its start"
    download = found["download"]
    if download is not None:
        yield f"download    {_download_text(download)}"
    yield from _coordinator_lines(found)
    if found["mirrors"] is not None:
        yield _mirrors_line(found["mirrors"])
    advice = _advice(found["state"])
    if advice:
        yield f"to do       {advice}"


def _advice(state: str) -> str:
    match state:
        case State.CURRENT:
            return ""
        case State.WAITING:
            return "remove the reason above; the standby tries again by itself"
        case State.INSTALLING | State.CATCHING_UP:
            return "wait: it has not everything yet"
        case State.PROMOTING:
            return "wait: it starts as a broker"
        case State.PROMOTED:
            return "nothing: it is a broker now, and its next start is kompakt serve"
        case _:
            return "wait until it has reached its leader"


def _print_leader(found: Json) -> None:
    typer.echo(
        f"cluster {found['cluster_id']}, term {found['term']}, entries {found['start']} to"
        f" {found['end']}, digest {found['digest']}"
    )
    if not found["followers"]:
        typer.echo("no standby has asked since the broker's start")
        return
    rows = [
        (
            each["id"],
            each["host"],
            str(each["end"]),
            str(each["lag"]),
            str(_coordinators_lag(each)) if each["coordinators"] else "-",
            duration_text(each["seen_seconds_ago"]) + " ago",
            str(each["installs"]),
            "" if each["download"] is None else _download_text(each["download"]),
        )
        for each in found["followers"]
    ]
    print_table(TITLES, rows, texts=("STANDBY", "HOST", "DOWNLOAD"))


def _coordinators_lag(follower: Json) -> int:
    return sum(topic["lag"] for topic in follower["coordinators"])


def _problems(found: Json) -> Iterator[str]:
    """Yields what is wrong with the standbys of a leader, and what to do."""
    for each in found["followers"]:
        if each["seen_seconds_ago"] > AWAY_SECONDS:
            yield f"{each['id']} is away: start it again, or ignore it if it was taken down"
        elif each["lag"] > LAG_ENTRIES_MAX and each["download"] is None:
            yield f"{each['id']} is behind: {SAYS_WHY}"
        for topic in each["coordinators"]:
            if topic["seen_seconds_ago"] > AWAY_SECONDS >= each["seen_seconds_ago"]:
                yield f"{each['id']} no longer asks for {topic['name']}: {SAYS_WHY}"
            elif topic["lag"] > LAG_OFFSETS_MAX and each["seen_seconds_ago"] <= AWAY_SECONDS:
                yield f"{each['id']} is behind with {topic['name']}: {SAYS_WHY}"


def _download_text(download: Json) -> str:
    return f"{size_text(download['position'])} of {size_text(download['size'])}"
