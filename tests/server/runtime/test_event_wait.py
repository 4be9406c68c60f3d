"""A wait for an event ends with it, or when its time is over."""

from __future__ import annotations

import asyncio

from server.runtime.event_wait import wait_at_most


async def test_it_ends_with_the_event_or_when_the_time_is_over() -> None:
    event = asyncio.Event()
    await wait_at_most(event, 0)
    assert not event.is_set()

    asyncio.get_running_loop().call_soon(event.set)
    async with asyncio.timeout(30):
        await wait_at_most(event, 3600)
