"""Asks the broker's HTTP listener for the tombstones of a topic, for `kompakt topics describe`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from cli.base.command_end import CommandFailed
from cli.compact.client import connected

Json = dict[str, Any]

SECONDS_MAX = 5.0
"""How long the command waits for this part of its answer."""


async def tombstones_of(url: str, topic: Json) -> Json:
    """Returns the topic's tombstones as the broker counts them, or {"error": why they are not known}."""
    try:
        async with connected(url, seconds_max=SECONDS_MAX) as client:
            name = quote(topic["topic"], safe="")
            answer = await client.call("GET", f"/topics/{name}/tombstones")
    except CommandFailed as error:
        return {"error": f"not known: {error}"}
    if answer["topic_id"] != topic["topic_id"]:
        return {
            "error": f"not known: the broker at {url} is another cluster's; choose it with --url"
        }
    return answer
