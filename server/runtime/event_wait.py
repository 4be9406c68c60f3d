"""Waits for an event, but not for ever. Only in a task: the first step of a request runs in none."""

from __future__ import annotations

import asyncio


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Return when an event is set, at the latest after a time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
