"""Wraps a result that is already known in an awaitable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


def at_once(result: T) -> Awaitable[T]:
    """Returns an awaitable that is already resolved with `result`."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
