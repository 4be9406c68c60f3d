"""Asks the broker's HTTP listener for what it counts of a topic, for `kompakt topics describe`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from cli.base.command_end import CommandFailed
from cli.compact.client import connected, other_cluster_text

Json = dict[str, Any]

SECONDS_MAX = 5.0
"""How long the command waits for the tombstones of a topic."""

COUNTING_SECONDS_MAX = 60.0
"""How long it waits for the records, which the broker may have to read from a disk."""


async def tombstones_of(url: str, topic: Json) -> Json:
    """Returns the topic's tombstones as the broker counts them, or {"error": why they are not known}."""
    path = f"/v1/compaction/topics/{quote(topic['topic'], safe='')}/tombstones"
    return await _counted(url, path, topic, SECONDS_MAX)


async def records_of(url: str, topic: Json) -> Json:
    """Returns the topic's records as the broker counts them, or {"error": why they are not known}."""
    path = f"/v1/topics/{quote(topic['topic'], safe='')}/records"
    return await _counted(url, path, topic, COUNTING_SECONDS_MAX)


async def _counted(url: str, path: str, topic: Json, seconds_max: float) -> Json:
    try:
        async with connected(url, root="", seconds_max=seconds_max) as client:
            answer = await client.call("GET", path)
    except CommandFailed as error:
        return {"error": f"not known: {error}"}
    if answer["topic_id"] != topic["topic_id"]:
        return {"error": f"not known: {other_cluster_text(url)}"}
    return answer
