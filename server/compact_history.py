"""`kompakt compact history`: the last cleaning passes, asked for and shown as a table."""

from __future__ import annotations

from typing import Any

from cleaner.text import duration_text, moment_text, size_text
from server.compact_client import TARGET, CompactionClient, connected
from server.compact_output import Json, name_of, print_json, print_table

DROPPED = "dropped_"
TITLES = ("ended", "partition", "result", "took", "before", "after", "dropped", "why")


async def show_history(url: str, target: str | None, *, limit: int, as_json: bool) -> int:
    """Ask for the passes over TOPIC, TOPIC-N or everything, and print them."""
    async with connected(url) as client:
        answer = await _ask(client, target, limit)
    if as_json:
        print_json(answer)
    else:
        print_history(answer["passes"])
    return 0


async def _ask(client: CompactionClient, target: str | None, limit: int) -> dict[str, Any]:
    """A topic of the whole name comes first; it may be gone, so nobody else knows whether it was one."""
    query = {"limit": str(limit)}
    answer = await client.call("GET", "/history", query | ({"topic": target} if target else {}))
    match = TARGET.fullmatch(target or "")
    if match is None or answer["passes"]:
        return answer
    return await client.call("GET", "/history", query | match.groupdict())


def print_history(passes: list[Json]) -> None:
    """One row a pass, newest first."""
    print_table(TITLES, [_row(each) for each in passes], wraps_last=True)


def _row(entry: Json) -> tuple[str, ...]:
    begin = moment_text(entry["ended_ms"]), name_of(entry), str(entry["result"])
    took = duration_text(entry["seconds"])
    if entry["result"] != "completed":
        return *begin, took, "", "", "", str(entry.get("error", ""))
    dropped = sum(
        count
        for verdict, count in entry["records_by_verdict"].items()
        if verdict.startswith(DROPPED)
    )
    sizes = size_text(entry["bytes_before"]), size_text(entry["bytes_after"])
    return *begin, took, *sizes, str(dropped), str(entry["reason"]).lower()
