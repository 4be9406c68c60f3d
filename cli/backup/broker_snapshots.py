"""The snapshots of a running broker, over its HTTP API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

from cli.base.command_end import EXIT_FAILED, CommandFailed, complain
from cli.compact.client import Json, connected

ROOT = "/v1/snapshots"
SNAPSHOT_SECONDS_MAX = 3600.0
"""The broker first makes everything durable that it has."""


@contextmanager
def new_snapshot(url: str, topics: Sequence[str] | None, *, is_kept: bool) -> Iterator[str]:
    """Let the broker make a snapshot. Yields the path of its snapshot.json; drops it at the end.

    Args:
        topics: their names; None for all.

    Raises:
        CommandFailed: the broker does not answer, or refuses.
    """
    body = json.dumps({"topics": topics})
    made = asyncio.run(_call(url, "POST", "", body=body))
    try:
        yield str(made["path"])
    finally:
        if not is_kept:
            _drop(url, str(made["id"]))


def _drop(url: str, snapshot_id: str) -> None:
    try:
        asyncio.run(_call(url, "DELETE", f"/{quote(snapshot_id, safe='')}"))
    except CommandFailed as error:
        complain(
            f"snapshot {snapshot_id} is still there and takes disk space: {error}; remove it with"
            f" kompakt snapshot drop {snapshot_id}"
        )


def path_of_snapshot(url: str, snapshot_id: str) -> str:
    """Returns the path of an existing snapshot's snapshot.json. Raises CommandFailed."""
    found = asyncio.run(_call(url, "GET", f"/{quote(snapshot_id, safe='')}"))
    if not found["is_complete"]:
        raise CommandFailed(EXIT_FAILED, f"snapshot {snapshot_id}: {found['reason']}")
    return str(found["path"])


async def _call(url: str, method: str, path: str, *, body: str | None = None) -> Json:
    async with connected(url, root=ROOT, seconds_max=SNAPSHOT_SECONDS_MAX) as client:
        return await client.call(method, path, body=body)
